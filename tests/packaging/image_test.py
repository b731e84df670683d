#!/usr/bin/env python3
"""The container image: every blob has its digest, nothing has a time, and in a namespace of its own
the layer alone answers probes, drains, and keeps conversations in its volume.

    image_test.py IMAGE
"""
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

from cases import Cases, run
from service import CHAT, Service

# As a container runtime does it: /proc and /dev of the host, and the layer as the root.
INSIDE = """
mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec /usr/sbin/chroot "$0" "$@"
"""
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private", "sh",
             "-c"]
KEY = "sk-packaging"


def blob_of(cases, image, entry):
    data = image.extractfile("blobs/sha256/" + entry["digest"].removeprefix("sha256:")).read()
    cases.tell(hashlib.sha256(data).hexdigest() == entry["digest"][7:], f"digest of {entry}")
    cases.tell(len(data) == entry["size"], f"size of {entry}")
    return data


def read_image(cases, path):
    """(configuration, layer as a tar)"""
    with tarfile.open(path) as image:
        cases.tell(all(info.mtime == 0 for info in image), "a file of the image has a time")
        layout = json.load(image.extractfile("oci-layout"))
        cases.tell(layout["imageLayoutVersion"] == "1.0.0", f"layout: {layout}")
        index = json.load(image.extractfile("index.json"))
        manifest = json.loads(blob_of(cases, image, index["manifests"][0]))
        config = json.loads(blob_of(cases, image, manifest["config"]))
        cases.tell(len(manifest["layers"]) == 1, "one layer")
        data = blob_of(cases, image, manifest["layers"][0])
    layer = tarfile.open(fileobj=io.BytesIO(data), mode="r:gz")
    layer.fileobj.seek(0)
    plain = hashlib.sha256(layer.fileobj.read())
    cases.tell(config["rootfs"]["diff_ids"] == ["sha256:" + plain.hexdigest()], "diff_ids")
    return config["config"], layer


def check_layer(cases, config, layer):
    user = int(config["User"].split(":")[0])
    for info in layer:
        owned = user if info.name.startswith("./var/lib/weir") else 0
        cases.tell(info.mtime == 0 and info.uid == owned, f"{info.name}: {info.mtime} {info.uid}")
    names = layer.getnames()
    for wanted in ("./usr/bin/weir", "./etc/weir/weir.toml", "./lib64/ld-linux-x86-64.so.2",
                   "./usr/share/doc/libdnnl2/copyright"):
        cases.tell(wanted in names, f"{wanted} is not in the image")
    cases.tell(not any(name.endswith("/sh") for name in names), "there is a shell in the image")


def serve(config, root, folder):
    """Yields (what, good), for two containers with one volume."""
    words = [*NAMESPACE, INSIDE, root, *config["Entrypoint"]]
    for time in ("first", "second"):
        service = Service(words, folder, [], KEY)
        yield f"{time}: READY=1: {service.said()}", service.told("READY=1", 30)
        yield f"{time}: probe", service.call("/health", host="10.1.2.3:8080")
        yield f"{time}: an answer", service.call("/v1/chat/completions", CHAT)
        code, stopping = service.stop()
        yield f"{time}: STOPPING=1", stopping
        yield f"{time}: ended with {code}: {service.said()}", code == 0
        if time == "second":
            yield f"restored: {service.said()}", "conversations were restored" in service.said()


def main():
    cases = Cases()
    config, layer = read_image(cases, sys.argv[1])
    check_layer(cases, config, layer)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder, "root")
        layer.extractall(root)
        for name in ("proc", "dev"):
            (root / name).mkdir()
        os.chmod(root / "var/lib/weir", 0o777)
        tried = run([*NAMESPACE, INSIDE, root, "/usr/bin/weir", "--version"])
        if tried.returncode != 0 and "weir:" not in tried.stderr:
            print(f"skipped namespace: none can be made here: {tried.stderr.strip()[:200]}")
        else:
            cases.tell(tried.stdout.startswith("weir "), f"weir --version: {tried}")
            for what, good in serve(config, root, folder):
                cases.tell(good, what)
        subprocess.run(["chmod", "-R", "u+w", root], check=False)
    cases.end()


if __name__ == "__main__":
    main()
