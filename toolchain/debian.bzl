"""The Debian packages that decide the bits of the build, as inputs of every compilation.

The system's compiler and headers are no action inputs of Bazel: after an upgrade a disk cache would
serve objects of the old compiler. versions.txt of this repository is an input of the C++ toolchain
(toolchain/BUILD.bazel), so the versions enter every action key, and a package that is absent or of
another version than toolchain/packages.txt says stops the build with one sentence. Only its group
build is meant: headers of the group lib are inputs of what includes them.
"""

# Parts of the system that change bits too and come with any Debian: named in the keys, not pinned.
UNPINNED = ["binutils-x86-64-linux-gnu", "libc6-dev", "libstdc++-12-dev"]
NVCC = "/usr/local/cuda/bin/nvcc"

def _matches(version, pattern):
    return version.startswith(pattern[:-1]) if pattern.endswith("*") else version == pattern

def _words(line):
    return [word for word in line.split(" ") if word]

def _wanted(text):
    rows = [_words(line) for line in text.split("\n") if line.strip() and not line.startswith("#")]
    return {row[1]: row[2] for row in rows if row[0] == "build"}

def _debian_packages_impl(ctx):
    ctx.path(ctx.attr.status)  # evaluated again when dpkg changes anything
    wanted = _wanted(ctx.read(ctx.attr.list))
    identity = ctx.os.environ.get("WEIR_TOOLCHAIN_ID", "")
    if identity:  # another package manager answers for the tools (nix/package.nix)
        ctx.file("versions.txt", identity + "\n")
    else:
        result = ctx.execute(
            [
                "dpkg-query",
                "-W",
                "-f",
                "${db:Status-Abbrev} ${Package} ${Version}\n",
            ] + sorted(wanted.keys()) + UNPINNED,
        )
        rows = [_words(line) for line in result.stdout.split("\n") if line.startswith("ii ")]
        found = {row[1]: row[2] for row in rows}
        wrong = [
            "%s is %s, wanted %s" % (name, found.get(name, "absent"), wanted[name])
            for name in sorted(wanted.keys())
            if not _matches(found.get(name, ""), wanted[name])
        ]
        if wrong:
            problems = "; ".join(wrong)
            fail("the tools differ from toolchain/packages.txt (%s); run ./bootstrap" % problems)
        lines = ["%s %s" % (name, found[name]) for name in sorted(found.keys())]
        if ctx.path(NVCC).exists:
            lines.append(ctx.execute([NVCC, "--version"]).stdout.strip())
        ctx.file("versions.txt", "\n".join(lines) + "\n")
    ctx.file("BUILD.bazel", 'exports_files(["versions.txt"])\n')

debian_packages = repository_rule(
    implementation = _debian_packages_impl,
    attrs = {
        "list": attr.label(mandatory = True, doc = "toolchain/packages.txt"),
        "status": attr.label(mandatory = True, doc = "dpkg's status file"),
    },
    environ = ["WEIR_TOOLCHAIN_ID"],
    local = True,
)
