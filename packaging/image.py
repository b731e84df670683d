#!/usr/bin/env python3
"""Writes a container image of the installed files, as an OCI archive. Same files, same bytes.

    packaging/image.py --root FOLDER --version N --out FILE.tar

One layer: the program, its models and configurations, the shared libraries of this machine that it
needs with their licences, a user, and folders that the user owns. There is no shell in it.
"""
import hashlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys

from tree import add_tree, folder, main, member, tarred, zipped

USER = 65532
KEPT = ("etc", "usr/bin", "usr/share/weir", "usr/share/doc")
PASSWD = f"root:x:0:0::/:/\nweir:x:{USER}:{USER}::/var/lib/weir:/\n"
# What a client says last wins: further arguments of `docker run` come after these.
COMMAND = ["/usr/bin/weir", "serve", "--config", "/etc/weir/weir.toml", "--host", "0.0.0.0"]


def libraries(program):
    """The shared libraries that the loader finds, and itself: the names they are asked for."""
    text = subprocess.run(["ldd", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    if "not found" in text:
        raise ValueError("a library of the program is missing:\n" + text)
    return sorted(set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", text, re.M)))


def packages(paths):
    """{package} of files; merged /usr has two names for one."""
    names = {pathlib.Path(path).resolve().name for path in paths}
    done = subprocess.run(["dpkg-query", "--search", *("*/" + name for name in sorted(names))],
                          check=False, stdout=subprocess.PIPE, text=True)
    found = {}
    for line in done.stdout.splitlines():
        match = re.fullmatch(r"([\w.+-]+):amd64: (?:/usr)?/lib/x86_64-linux-gnu/([^/]+)", line)
        if match:
            found[match.group(2)] = match.group(1)
    if names - set(found):
        raise ValueError(f"no package of this machine has {sorted(names - set(found))}")
    return {found[name] for name in names}


def copy_libraries(root):
    paths = libraries(root / "usr/bin/weir")
    for path in paths:
        to = root / path.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)
        to.chmod(0o755)
    for package in packages(paths):
        licence = pathlib.Path("usr/share/doc", package, "copyright")
        (root / licence).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile("/" / licence, root / licence)


def keep_what_runs(root):
    for path in sorted(root.rglob("*"), reverse=True):
        name = str(path.relative_to(root))
        if any(name == kept or name.startswith(kept + "/") for kept in KEPT):
            continue
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        else:
            path.unlink()


def add_writable(tar):
    for name, mode, user in (("./tmp/", 0o1777, 0), ("./var/", 0o755, 0), ("./var/lib/", 0o755, 0),
                             ("./var/tmp/", 0o1777, 0), ("./var/lib/weir/", 0o700, USER)):
        info = folder(name, mode)
        info.uid = info.gid = user
        tar.addfile(info)


def blob(blobs, data, kind):
    digest = hashlib.sha256(data).hexdigest()
    blobs[digest] = data
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": "sha256:" + digest,
            "size": len(data)}


def image(layer, version):
    blobs = {}
    config = {
        "architecture": "amd64", "os": "linux",
        "config": {
            "User": f"{USER}:{USER}", "Entrypoint": COMMAND, "WorkingDir": "/var/lib/weir",
            "Env": ["PATH=/usr/bin", "XDG_DATA_HOME=/var/lib", "LANG=C.UTF-8"],
            "ExposedPorts": {"8080/tcp": {}}, "Volumes": {"/var/lib/weir": {}},
            "StopSignal": "SIGTERM",
            "Labels": {"org.opencontainers.image.title": "weir",
                       "org.opencontainers.image.version": version},
        },
        "rootfs": {"type": "layers",
                   "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
    }
    manifest = {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(blobs, json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(blobs, zipped(layer), "layer.v1.tar+gzip")],
    }
    entry = blob(blobs, json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": version,
                            "io.containerd.image.name": f"docker.io/library/weir:{version}"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
             "manifests": [entry]}
    return {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "index.json": json.dumps(index).encode(),
            **{"blobs/sha256/" + digest: data for digest, data in sorted(blobs.items())}}


def write(options):
    root = options.root
    keep_what_runs(root)
    copy_libraries(root)
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text(f"root:x:0:\nweir:x:{USER}:\n")

    def fill_layer(tar):
        add_tree(tar, root)
        add_writable(tar)

    def fill(tar):
        for name in ("blobs/", "blobs/sha256/"):
            tar.addfile(folder(name))
        for name, data in image(tarred(fill_layer), options.version).items():
            tar.addfile(member(name, 0o644, len(data)), io.BytesIO(data))
    options.out.write_bytes(tarred(fill))


if __name__ == "__main__":
    sys.exit(main(__doc__, write))
