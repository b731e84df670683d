"""Seeds of hub_fuzz: what a hub sends, and the manifest of a folder of models."""

import json

from containers import write

SUM = "0123456789abcdef" * 4
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def large(name, size):
    return {
        "type": "file",
        "oid": COMMIT,
        "path": name,
        "size": size,
        "lfs": {"oid": SUM, "size": size, "pointerSize": 134},
    }


def small(name, size=100):
    return {"type": "file", "oid": COMMIT, "path": name, "size": size}


def put(kind, name, text):
    write("hub", name, bytes([kind]) + text.encode())


def write_all():
    gguf = [large(f"m-{q}.gguf", 5000) for q in ("Q4_K_M", "Q8_0", "UD-IQ2_XXS")]
    split = [large(f"BF16/m-BF16-0000{i}-of-00003.gguf", 9) for i in (1, 2, 3)]
    folder = {"type": "directory", "oid": COMMIT, "path": "BF16", "size": 0}
    bad = [small("../x"), small("/x"), small(".gitattributes"), small("a\\b"), small("a.part")]
    put(0, "list", json.dumps([folder, small("README.md")] + gguf + split))
    put(0, "unsafe", json.dumps(bad + [large("m.gguf", 1 << 44)]))
    put(0, "checkpoint", json.dumps([small("config.json"), small("tokenizer.json"),
                                     large("model-00001-of-00001.safetensors", 7),
                                     small("model.safetensors.index.json")]))
    put(0, "revision", json.dumps({"id": "o/n", "sha": COMMIT, "siblings": []}))
    files = [{"name": "m-Q8_0.gguf", "bytes": 5, "sha256": SUM}]
    put(1, "manifest", json.dumps({
        "version": 1, "repository": "o/n", "models": [
            {"kind": "gguf", "quantisation": "Q8_0", "revision": "main", "commit": COMMIT,
             "date": "2026-11-27T09:30:00Z", "files": files},
            {"kind": "checkpoint", "revision": "v1", "commit": None, "date": "x",
             "files": [{"name": "config.json", "bytes": 2, "sha256": None}]}]}))
    put(2, "name", "Qwen/Qwen3-0.6B-GGUF:Q4_K_M")
    put(2, "split", "BF16/m-BF16-00001-of-00003.gguf")
    put(2, "endpoint", "https://huggingface.co:443/mirror")
    put(3, "redirect", f"HTTP/1.1 302 Found\r\nX-Repo-Commit: {COMMIT}\r\nContent-Length: 0\r\n")
    put(3, "page", "HTTP/2 200\r\nLink: <https://h/api?recursive=true&cursor=Zm9v>; rel=\"next\""
        "\r\nContent-Range: bytes 5-9/10\r\nRetry-After: 3\r\nX-Error-Code: GatedRepo\r\n")
