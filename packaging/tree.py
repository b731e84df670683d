"""Folders as archives that depend on names, modes and contents of files only, and the programs that
write them."""
import argparse
import gzip
import io
import pathlib
import subprocess
import sys
import tarfile


def files_below(root):
    return sorted(root.rglob("*"), key=lambda path: path.relative_to(root).parts)


def is_elf(path):
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def member(name, mode, size=0, kind=tarfile.REGTYPE):
    """A file of root, from 1970."""
    info = tarfile.TarInfo(name)
    info.mode, info.size, info.type = mode, size, kind
    info.uname = info.gname = "root"
    return info


def folder(name, mode=0o755):
    return member(name, mode, kind=tarfile.DIRTYPE)


def add_tree(tar, root):
    tar.addfile(folder("./"))
    for path in files_below(root):
        name = f"./{path.relative_to(root)}"
        if path.is_symlink():
            info = member(name, 0o777, kind=tarfile.SYMTYPE)
            info.linkname = str(path.readlink())
            tar.addfile(info)
        elif path.is_dir():
            tar.addfile(folder(name + "/"))
        else:
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as file:
                tar.addfile(member(name, mode, path.stat().st_size), file)


def tarred(write):
    """The bytes of a tar that `write` fills."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        write(tar)
    return out.getvalue()


def zipped(data):
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) as file:
        file.write(data)
    return out.getvalue()


def packed(write):
    return zipped(tarred(write))


def main(text, write, folders=()):
    """A program that describes itself by `text`, whose first line is its help: write(options) has
    root, version, out and the optional `folders`. The exit code."""
    parser = argparse.ArgumentParser(description=text.split("\n")[0])
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    for name in folders:
        parser.add_argument("--" + name, type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    try:
        write(options)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"{parser.prog.removesuffix('.py')}: {error}", file=sys.stderr)
        return 1
    return 0
