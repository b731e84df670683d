#!/usr/bin/env python3
"""The Debian package: what dpkg reads in it, that it is the same twice, and that it serves the demo
and keeps conversations over an upgrade.

    deb_test.py PACKAGE DEB.PY
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

from cases import Cases, run
from service import CHAT, Service

LISTED = re.compile(r"(\S+) (\S+) +\d+ (\S+ \S+) \./(\S*)")


def check_fields(cases, package):
    done = run(["dpkg-deb", "--field", package])
    text = done.stdout
    cases.tell(done.returncode == 0, f"dpkg-deb: {done.stderr}")
    fields = dict(line.split(": ", 1) for line in text.splitlines() if re.match(r"[A-Z]", line))
    cases.tell(re.fullmatch(r"\d+\.\d+\.\d+", fields["Version"]), f"version: {fields['Version']}")
    depends = [word.split()[0] for word in fields["Depends"].split(", ")]
    for wanted in ("libc6", "libstdc++6", "libdnnl2", "libjansson4", "libomp5-19", "libseccomp2"):
        cases.tell(wanted in depends, f"Depends has no {wanted}: {depends}")
    cases.tell(len(set(depends)) == len(depends), f"Depends: {depends}")
    # What is loaded at run time is in no ELF file.
    recommended = fields.get("Recommends", "").split(", ")
    cases.tell(recommended == ["libcurl4", "libedit2"], f"Recommends: {recommended}")
    info = run(["dpkg-deb", "--info", package]).stdout
    for script in ("conffiles", "postinst", "postrm", "prerm"):
        cases.tell(re.search(rf"\b{script}\b", info), f"no {script}: {info}")


def check_list(cases, package):
    """Everything is root's, has no time, and is readable; returns the names."""
    names = []
    for line in run(["env", "TZ=UTC", "dpkg-deb", "--contents", package]).stdout.splitlines():
        mode, owner, time, name = LISTED.match(line).groups()
        names.append(name.split(" -> ")[0])
        good = owner == "root/root" and time == "1970-01-01 00:00"
        good = good and mode in ("drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--", "lrwxrwxrwx")
        cases.tell(good, f"in the package: {line}")
    for wanted in ("usr/bin/weir", "etc/weir/weir.toml", "usr/lib/systemd/system/weir.service",
                   "usr/share/man/man1/weir-serve.1", "usr/share/man/man5/weir.toml.5",
                   "usr/share/bash-completion/completions/weir",
                   "usr/share/weir/models/weir-demo/model.safetensors",
                   "usr/lib/x86_64-linux-gnu/libweir.so.0"):
        cases.tell(wanted in names, f"{wanted} is not in the package")
    cases.tell("usr/bin/serve" not in names, "the package has a program named serve")


def check_unit(cases, root):
    """The unit names what the package has, and where its configuration keeps sessions."""
    unit = (root / "usr/lib/systemd/system/weir.service").read_text()
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.M))
    program, command, option, file = settings["ExecStart"].split()
    cases.tell((root / program.lstrip("/")).is_file(), f"{program} is not in the package")
    cases.tell((command, option) == ("serve", "--config"), f"ExecStart: {settings['ExecStart']}")
    config = tomllib.loads((root / file.lstrip("/")).read_text())
    state = f"/var/lib/{settings['StateDirectory']}/"
    cases.tell(config["sessions"]["dir"].startswith(state), "sessions are not below StateDirectory")
    models = settings["Environment"].removeprefix("XDG_DATA_HOME=") + "/weir"
    cases.tell(models + "/" == state, f"models are not below StateDirectory: {models}")
    cases.tell(settings["Type"] == "notify", f"Type={settings['Type']}")
    # The filter answers EPERM, which the program ignores: these would only make it worse.
    allowed = " ".join(re.findall(r"^SystemCallFilter=([^~].*)$", unit, re.M)).split()
    for call in ("sched_setaffinity", "setpriority", "ioprio_set", "landlock_restrict_self"):
        cases.tell(call in allowed, f"SystemCallFilter has no {call}: {allowed}")
    if cases.has("systemd-analyze"):
        path = root / "usr/lib/systemd/system/weir.service"
        said = run(["systemd-analyze", "security", "--offline=true", "--no-pager", path])
        score = re.search(r"exposure level for .*: ([\d.]+)", said.stdout)
        cases.tell(score and float(score.group(1)) < 2, f"exposure: {said.stdout[-300:]}")
        cases.tell(not said.stderr, f"systemd-analyze says {said.stderr}")


def check_same(cases, script, folder):
    """The order, time and mode of files on disk do not matter."""
    packages = []
    for names, mode, time in ((("b", "a", "etc/c"), 0o640, 1), (("etc/c", "a", "b"), 0o666, 9)):
        root = pathlib.Path(folder, f"tree{time}")
        for name in names:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
            path.chmod(mode)
            os.utime(path, (time, time))
        (root / "link").symlink_to("a")
        out = root.with_suffix(".deb")
        cases.quiet([script, "--root", root, "--version", "1.2.3", "--out", out], "deb.py")
        packages.append(out.read_bytes())
    cases.tell(packages[0] == packages[1], "the package of the same files differs")
    missing = run([script, "--root", folder + "/none", "--version", "1", "--out", "/no/folder/x"])
    cases.tell(missing.returncode == 1 and "deb: " in missing.stderr, "a failure is not reported")


def serve(root, folder, work):
    """Two versions, one after the other, with the same folder of sessions. Yields (what, good)."""
    words = [root / "usr/bin/weir", "serve", "--config", root / "etc/weir/weir.toml"]
    settings = [f"sessions.dir={folder}/sessions"]
    first = Service(words, work, settings)
    yield "READY=1", first.told("READY=1", 30)
    yield "an answer", first.call("/v1/chat/completions", CHAT)
    metrics = first.call("/metrics") or ""
    code, stopping = first.stop()
    yield "STOPPING=1", stopping
    yield f"ended with {code}: {first.said()}", code == 0
    again = Service(words, work, settings)
    yield "READY=1 again", again.told("READY=1", 30)
    yield f"restored: {again.said()}", "1 conversations were restored" in again.said()
    yield "the second ends with 0", again.stop() == (0, True)
    yield from dashboard(root, metrics)


def dashboard(root, metrics):
    """Every metric that the dashboard asks for is one that the server has."""
    text = (root / "usr/share/doc/weir/grafana.json").read_text()
    asked = set(re.findall(r"weir:\w+", text))
    had = set(re.findall(r"^(weir:\w+)\{", metrics, re.M))
    yield f"{len(asked)} metrics of the dashboard", len(asked) > 20
    yield f"the dashboard asks for {sorted(asked - had)}", asked <= had


def main():
    package, script = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    cases = Cases()
    check_fields(cases, package)
    check_list(cases, package)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder, "root")
        subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
        check_unit(cases, root)
        check_same(cases, script, folder)
        for what, good in serve(root, folder, folder):
            cases.tell(good, what)
    cases.end()


if __name__ == "__main__":
    main()
