#!/usr/bin/env python3
"""Manual pages and completions say what the programs' help says, and their readers accept them.

    manual_test.py FOLDER PROGRAM      FOLDER of //tools/manual:pages, the program weir
"""
import pathlib
import re
import sys

from cases import Cases, run

OPTION = re.compile(r"^ +(?:-\w, )?--([\w-]+)", re.M)
# Completes each line of stdin, "WORD WORD ...|", and prints the answer on one line.
BASH = """
source "$1"
while IFS= read -r line; do
    read -ra COMP_WORDS <<<"${line%|}"
    case $line in *' |') COMP_WORDS+=('') ;; esac
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _weir
    echo "${COMPREPLY[*]}"
done
"""


def read_help(program):
    """{command: {option}}, as `--help` lists them."""
    text = run([program, "--help"]).stdout
    commands = re.findall(r"^  ([a-z][a-z -]*?)(?:  +|$)", text.split("Commands:")[1], re.M)
    return {c: set(OPTION.findall(run([program, *c.split(), "--help"]).stdout)) for c in commands}


def in_page(text):
    """The options that have an entry of their own."""
    entries = re.findall(r"^\.TP\n(.*)$", text, re.M)
    names = (re.search(r"\\fB\\-\\-(\S+?)\\fR", entry) for entry in entries)
    return {name.group(1).replace("\\-", "-") for name in names if name}


def check_pages(cases, folder, program, commands):
    pages = {p.name for p in (folder / "man/man1").iterdir()}
    wanted = {f"weir-{c.replace(' ', '-')}.1" for c in commands} | {"weir.1"}
    cases.tell(pages == wanted, f"pages: {sorted(pages ^ wanted)}")
    for command, options in commands.items():
        page = folder / f"man/man1/weir-{command.replace(' ', '-')}.1"
        named = in_page(page.read_text())
        cases.tell(named == options, f"{page.name}: {sorted(named ^ options)}")
    text = (folder / "man/man5/weir.toml.5").read_text()
    keys = re.findall(r"^\.TP\n\\fB([\w.]+)\\fR", text, re.M)
    section, wanted = "", []
    for line in run([program, "serve", "--help-config"]).stdout.splitlines():
        table = re.match(r"\[([\w.]+)\]", line)
        key = re.match(r"(?:# )?(\w+(?:\.\w+)*)(?: = |\.OP: )", line)
        section = table.group(1) if table else section
        if key:
            wanted.append(key.group(1) if "OP" in line else f"{section}.{key.group(1)}")
    cases.tell(keys == wanted, f"weir.toml.5: {sorted(set(keys) ^ set(wanted))}")


def complete(script, lines):
    done = run(["bash", "-c", BASH, "bash", script], input="\n".join(lines) + "\n")
    return [set(line.split()) for line in done.stdout.split("\n")[:-1]], done.stderr


def check_bash(cases, script, commands):
    cases.quiet(["bash", "-n", script], "bash -n")
    answers, said = complete(script, [f"weir {command} --|" for command in commands])
    cases.tell(not said, f"bash says {said[:1000]}")
    for command, found in zip(commands, answers):
        wanted = {"--" + option for option in commands[command]}
        cases.tell(found == wanted, f"bash: {command}: {sorted(found ^ wanted)}")
    words = {command.split()[0] for command in commands} | {"--help", "--version"}
    members = {command.split()[1] for command in commands if command.startswith("eval ")}
    (first, evals, choices, with_equals, keys, rest), _ = complete(script, [
        "weir |", "weir eval |", "weir serve --metrics-compat |",
        "weir serve --metrics-compat = v|", "weir chat --set server.po|",
        "weir serve --plan --mod|"])
    cases.tell(first == words, f"bash: commands: {sorted(first ^ words)}")
    cases.tell(evals == members, f"bash: eval: {sorted(evals ^ members)}")
    cases.tell(choices == {"none", "vllm"}, f"bash: words of an option: {choices}")
    cases.tell(with_equals == {"vllm"}, f"bash: words after an equals sign: {with_equals}")
    cases.tell(keys == {"server.port="}, f"bash: keys: {keys}")
    cases.tell(rest == {"--model", "--model-name"}, f"bash: options after one: {rest}")


def check_others(cases, folder, commands):
    """zsh and fish: the options of each command are in its part of the script."""
    zsh = (folder / "zsh/_weir").read_text()
    parts = dict(re.findall(r"^    \('([\w -]+)'\)\n        _arguments(.*?);;$", zsh, re.M | re.S))
    fish = (folder / "fish/weir.fish").read_text()
    lines = re.findall(r"^set -g __weir_current '(.*)'\n((?:__weir_option .*\n)*)", fish, re.M)
    for name, texts, option in (("zsh", parts, r"'\*?--([\w-]+)=?\["),
                                ("fish", dict(lines), r"^__weir_option -l ([\w-]+)")):
        for command, options in commands.items():
            named = set(re.findall(option, texts.get(command, ""), re.M))
            cases.tell(named == options, f"{name}: {command}: {sorted(named ^ options)}")
    if cases.has("zsh"):
        cases.quiet(["zsh", "-n", folder / "zsh/_weir"], "zsh -n")
    if cases.has("fish"):
        cases.quiet(["fish", "--no-execute", folder / "fish/weir.fish"], "fish --no-execute")


def check_lint(cases, folder):
    pages = sorted(folder.glob("man/man?/*"))
    if cases.has("mandoc"):
        # The pages have no date: they are the same whenever they are made.
        done = run(["mandoc", "-T", "lint", "-W", "warning", *pages])
        said = [line for line in done.stdout.splitlines() if "missing date" not in line]
        cases.tell(not said, f"mandoc: {said[:5]}")
    if cases.has("groff"):
        cases.quiet(["groff", "-man", "-ww", "-z", *pages], "groff -man")


def main():
    cases = Cases()
    folder, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    commands = read_help(program)
    cases.tell(len(commands) > 30 and all(commands.values()), f"commands of --help: {commands}")
    check_pages(cases, folder, program, commands)
    check_bash(cases, folder / "bash/weir", commands)
    check_others(cases, folder, commands)
    check_lint(cases, folder)
    cases.end()


if __name__ == "__main__":
    main()
