#!/usr/bin/env python3
"""The Helm chart, the file for Compose and Grafana's dashboard are whole, and the keys that they
set are the program's.

    files_test.py PROGRAM
"""
import json
import pathlib
import re
import sys

from cases import Cases, run

PACKAGING = pathlib.Path("packaging")
VALUE = re.compile(r"\.Values\.([\w.]+)")


def keys_of(program):
    """Every key of the configuration, with its section."""
    section, found = "", set()
    for line in run([program, "serve", "--help-config"]).stdout.splitlines():
        table, key = re.match(r"\[([\w.]+)\]", line), re.match(r"(\w+(?:\.\w+)*) = ", line)
        section = table.group(1) if table else section
        if key:
            found.add(f"{section}.{key.group(1)}")
    return found


def read_values(text):
    """{"image.tag": "0.1.0"} of YAML without lists in blocks: by indentation."""
    path, found = [], {}
    for line in text.splitlines():
        match = re.match(r"( *)([\w.]+):(?: (.*))?$", line)
        if not match:
            continue
        path = path[:len(match.group(1)) // 2] + [match.group(2)]
        found["/".join(path)] = match.group(3)
    return found


def check_template(cases, file, names, values, used):
    text = file.read_text()
    actions = re.findall(r"\{\{-? *(.*?) *-?\}\}", text)
    opened = sum(re.match(r"(if|range|with|define)\b", action) is not None for action in actions)
    closed = actions.count("end")
    cases.tell(opened == closed, f"{file}: {opened} blocks are opened, {closed} closed")
    for action in actions:
        for name in re.findall(r'include "([\w.]+)"', action):
            cases.tell(name in names, f"{file}: {name} is not defined")
        for value in VALUE.findall(action):
            path = value.replace(".", "/")
            cases.tell(path in values, f"{file}: {value} is not in values.yaml")
            used.add(path.split("/")[0])
    plain = re.sub(r"\{\{.*?\}\}", "x", text)
    bad = [line for line in plain.splitlines() if "\t" in line or line != line.rstrip()]
    cases.tell(not bad, f"{file}: tabs, or blanks at an end: {bad}")


def check_chart(cases, keys):
    chart = PACKAGING / "helm"
    values = read_values((chart / "values.yaml").read_text())
    files = sorted((chart / "templates").iterdir())
    names = {name for file in files for name in re.findall(r'define "([\w.]+)"', file.read_text())}
    used = set()
    for file in files:
        check_template(cases, file, names, values, used)
    unused = {name.split("/")[0] for name in values} - used
    cases.tell(not unused, f"values.yaml: no template uses {sorted(unused)}")
    pod = (chart / "templates/statefulset.yaml").read_text()
    settings = set(re.findall(r'printf "([a-z_.]+)=', pod))
    settings |= {name.split("/")[1] for name in values if name.startswith("config/")}
    cases.tell(settings > {"memory.host"} and settings <= keys, f"no keys: {settings - keys}")
    probes = re.findall(r"(\w+)Probe:\n +httpGet:\n +path: (\S+)\n +port: http\n", pod)
    wanted = [(name, "/health") for name in ("startup", "readiness", "liveness")]
    cases.tell(probes == wanted, f"probes: {probes}")
    version = re.search(r'appVersion: "(.*)"', (chart / "Chart.yaml").read_text()).group(1)
    cases.tell(values["image/tag"] == version, "the chart has another image than its version")
    return version


def check_compose(cases, version, program, keys):
    text = (PACKAGING / "compose.yaml").read_text()
    own = run([program, "--version"]).stdout.split()[1]
    cases.tell(version == own, f"the chart is of {version}, the program of {own}")
    cases.tell(f"image: weir:{version}\n" in text, f"compose.yaml has no image weir:{version}")
    settings = set(re.findall(r'"--set", "([a-z_.]+)=', text))
    cases.tell(settings and settings <= keys, f"compose.yaml: no keys: {settings - keys}")


def check_dashboard(cases):
    """tests/packaging/deb_test.py compares the metrics with a server's."""
    board = json.loads((PACKAGING / "grafana.json").read_text())
    variables = {variable["name"] for variable in board["templating"]["list"]}
    places = set()
    for panel in board["panels"]:
        place = (panel["gridPos"]["x"], panel["gridPos"]["y"])
        cases.tell(place not in places, f"{panel['title']} is over another panel")
        places.add(place)
        for target in panel["targets"]:
            expr = target["expr"]
            cases.tell(expr.count("(") == expr.count(")"), f"{panel['title']}: {expr}")
            asked = set(re.findall(r"\$(\w+)", expr)) - {"__rate_interval"}
            cases.tell(asked and asked <= variables, f"{panel['title']}: variables {asked}")
            totals = set(re.findall(r"(weir:\w+_(?:total|bucket))\{", expr))
            rates = set(re.findall(r"rate\((weir:\w+)\{", expr))
            cases.tell(totals == rates, f"{panel['title']}: a counter without a rate: {expr}")
    cases.tell(len(places) >= 10, f"{len(places)} panels")


def main():
    cases = Cases()
    program = sys.argv[1]
    keys = keys_of(program)
    version = check_chart(cases, keys)
    check_compose(cases, version, program, keys)
    check_dashboard(cases)
    if cases.has("helm"):
        cases.quiet(["helm", "lint", "--quiet", "--strict", "--set", "apiKey=x",
                     PACKAGING / "helm"], "helm lint")
    cases.end()


if __name__ == "__main__":
    main()
