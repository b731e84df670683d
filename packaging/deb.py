#!/usr/bin/env python3
"""Writes a Debian package of the files below a folder. Same files, same bytes: no times, no owner.

    packaging/deb.py --root FOLDER --version N [--scripts FOLDER] --out FILE.deb

Depends is computed: the shared libraries that its ELF files need (DT_NEEDED) and that are not in
it, by the packages of this machine that have them (dpkg's *.shlibs). Files below etc/ are
configuration files. --scripts: a folder with postinst, prerm ...
"""
import io
import pathlib
import re
import subprocess
import sys
import tarfile

from tree import add_tree, files_below, is_elf, main, member, packed

DPKG = pathlib.Path("/var/lib/dpkg/info")
CONTROL = """\
Package: weir
Version: {version}
Architecture: amd64
Maintainer: Weir maintainers <weir@localhost>
Section: science
Priority: optional
Installed-Size: {kib}
Depends: {depends}
Recommends: libcurl4, libedit2
Description: inference engine for large language models
 Serves models through OpenAI's API within a memory limit that it keeps: what
 does not fit is refused before it is allocated. Conversations are saved and
 restored. With a small trained model, a systemd service and a C library.
 .
 libcurl4 is for `weir get`, which downloads models, libedit2 for the lines of
 `weir chat`.
"""


def control_of(files):
    """files: {name: (mode, bytes)}"""
    def write(tar):
        tar.addfile(member("./", 0o755, kind=tarfile.DIRTYPE))
        for name, (mode, data) in sorted(files.items()):
            tar.addfile(member("./" + name, mode, len(data)), io.BytesIO(data))
    return packed(write)


def archive(members):
    """An ar archive, as dpkg-deb reads it: members of even length."""
    out = b"!<arch>\n"
    for name, data in members:
        out += b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name, 0, 0, 0, b"100644", len(data))
        out += data + b"\n" * (len(data) % 2)
    return out


def needed(path):
    text = subprocess.run(["readelf", "-dW", path], check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))


def provided(lines):
    """{(library, version): dependency} of lines of *.shlibs."""
    found = {}
    for line in lines:
        words = line.split(None, 2)
        if len(words) == 3 and not words[0].startswith(("#", "udeb:")):
            found.setdefault((words[0], words[1]), words[2].strip())
    return found


def depends(sonames, shlibs):
    found, missing = set(), []
    for soname in sorted(sonames):
        match = re.fullmatch(r"(.+)\.so\.(.+)|(.+)-(\d[^-]*)\.so", soname)
        key = match and (match.group(1) or match.group(3), match.group(2) or match.group(4))
        if key in shlibs:
            found.add(shlibs[key])
        else:
            missing.append(soname)
    if missing:
        raise ValueError("no package of this machine has " + ", ".join(missing))
    return ", ".join(sorted(found))


def native_shlibs():
    """Those of this machine's own architecture: other ones have the same names."""
    lines = []
    for path in sorted(DPKG.glob("*.shlibs")):
        if path.name.endswith(":amd64.shlibs"):
            lines += path.read_text().splitlines()
    return provided(lines)


def build(root, version, scripts):
    paths = files_below(root)
    elfs = [path for path in paths if is_elf(path)]
    own = {path.name for path in paths}
    sonames = set().union(*(needed(path) for path in elfs)) - own
    kib = sum((path.stat().st_size + 1023) // 1024 for path in paths if path.is_file())
    text = CONTROL.format(version=version, kib=kib,
                          depends=depends(sonames, native_shlibs()) or "libc6")
    files = {"control": (0o644, text.encode())}
    conf = ["/" + str(path.relative_to(root)) for path in paths
            if path.is_file() and path.relative_to(root).parts[0] == "etc"]
    if conf:
        files["conffiles"] = (0o644, "".join(name + "\n" for name in conf).encode())
    for script in sorted(scripts.iterdir()) if scripts else []:
        files[script.name] = (0o755, script.read_bytes())
    return archive([(b"debian-binary", b"2.0\n"), (b"control.tar.gz", control_of(files)),
                    (b"data.tar.gz", packed(lambda tar: add_tree(tar, root)))])


def write(options):
    options.out.write_bytes(build(options.root, options.version, options.scripts))


if __name__ == "__main__":
    sys.exit(main(__doc__, write, ["scripts"]))
