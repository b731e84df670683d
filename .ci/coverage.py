"""Prints llvm-cov's summary by folder: the files of a folder and of those in it, as a table."""

import collections
import json
import os
import sys


def folders(files):
    """Sums [lines, covered, branches, covered] of each folder of two names."""
    sums = collections.defaultdict(lambda: [0, 0, 0, 0])
    for file in files:
        name = os.path.relpath(file["filename"]) if os.path.isabs(file["filename"]) else file["filename"]
        if name.startswith(".."):
            continue
        parts = name.split("/")
        folder = "/".join(parts[: min(2, len(parts) - 1)])
        lines, branches = file["summary"]["lines"], file["summary"]["branches"]
        for key in (folder, "all"):
            for i, n in enumerate((lines["count"], lines["covered"], branches["count"], branches["covered"])):
                sums[key][i] += n
    return sums


def percent(covered, count):
    return f"{100 * covered / count:.1f}" if count else "-"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        files = json.load(file)["data"][0]["files"]
    print("| folder | lines | % | branches | % |\n|---|---:|---:|---:|---:|")
    sums = folders(files)
    for folder in sorted(sums, key=lambda name: (name == "all", name)):
        n_lines, lines, n_branches, branches = sums[folder]
        print(f"| {folder} | {n_lines} | {percent(lines, n_lines)} | {n_branches} | {percent(branches, n_branches)} |")


if __name__ == "__main__":
    main()
