"""Prints llvm-cov's summary by folder: the files of a folder and of those in it, as a table."""

import collections
import json
import os
import sys


def folders(files):
    """Sums [lines, covered, branches, covered] of each folder of two names."""
    sums = collections.defaultdict(lambda: [0, 0, 0, 0])
    for file in files:
        name = os.path.relpath(file["filename"])
        if name.startswith(".."):
            continue
        parts = name.split("/")
        folder = "/".join(parts[: min(2, len(parts) - 1)])
        counts = [file["summary"][kind][what] for kind in ("lines", "branches")
                  for what in ("count", "covered")]
        for key in (folder, "all"):
            sums[key] = [a + b for a, b in zip(sums[key], counts)]
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
        print(f"| {folder} | {n_lines} | {percent(lines, n_lines)} |"
              f" {n_branches} | {percent(branches, n_branches)} |")


if __name__ == "__main__":
    main()
