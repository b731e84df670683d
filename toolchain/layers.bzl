"""Which folder may depend on which: includes go downwards only (docs/decisions/0005)."""

# From the bottom; folders of one line see each other. A package belongs to the longest entry that
# it begins with.
_LAYERS = [
    ["engine/base", "kernels/abi", "kernels/kv"],
    ["kernels"],
    ["offload"],
    [
        "engine/config",
        "engine/constrain",
        "engine/formats",
        "engine/sample",
        "engine/text",
        "engine/toolcalls",
        "configs",
    ],
    ["engine/hub"],
    ["engine/kv", "engine/model"],
    ["engine/session/file"],
    ["engine/states"],
    ["engine/schedule"],
    ["engine/session"],
    ["engine"],
    ["engine/cli", "engine/router", "engine/serve"],
    ["tools"],
    ["tests", "toolchain"],
]

# Libraries of the system that one folder hides from all others.
_HIDDEN = {
    "curl": ["engine/hub"],
    "dnnl": ["kernels/onednn"],
    "pcre2": ["engine/text"],
    "seccomp": ["engine/cli"],
    "tomlplusplus": ["engine/config"],
    "utf8proc": ["engine/text"],
}

def _holds(folder, package):
    return package == folder or package.startswith(folder + "/")

def _rank(package):
    best, length = None, -1
    for rank, folders in enumerate(_LAYERS):
        for folder in folders:
            if _holds(folder, package) and len(folder) > length:
                best, length = rank, len(folder)
    return best

def check_layers(name, deps):
    """Fails when a target depends on a folder above its own, or on a library that is hidden from
    it.
    """
    package = native.package_name()
    own = _rank(package)
    if own == None or type(deps) != type([]):
        return
    for dep in deps:
        if dep.startswith("//"):
            other = _rank(dep[2:].split(":")[0])
            if other != None and other > own:
                fail(
                    "//%s:%s may not depend on %s: " % (package, name, dep) +
                    "includes go downwards only (toolchain/layers.bzl)",
                )
        elif dep.startswith("@") and own < len(_LAYERS) - 1:
            users = _HIDDEN.get(dep[1:].split("//")[0])
            if users and not [user for user in users if _holds(user, package)]:
                fail(
                    "//%s:%s may not use %s: only %s may (toolchain/layers.bzl)" % (
                        package,
                        name,
                        dep,
                        ", ".join(users),
                    ),
                )
