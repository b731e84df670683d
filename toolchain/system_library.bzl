"""A library of the system: its headers as tracked inputs, symlinked so that nothing else there is
visible; linked by flag.

They are looked for in /usr/include and its folder of this architecture, or in the folders of
WEIR_INCLUDE_PATH, parted by colons.
"""

_FOLDERS = "/usr/include:/usr/include/x86_64-linux-gnu"

def _system_library_impl(ctx):
    roots = ctx.os.environ.get("WEIR_INCLUDE_PATH", _FOLDERS).split(":")
    for header in ctx.attr.headers:
        found = [root + "/" + header for root in roots if ctx.path(root + "/" + header).exists]
        if not found:
            fail(
                "%s: %s/%s is not installed; run ./bootstrap" % (
                    ctx.attr.library,
                    roots[0],
                    header,
                ),
            )
        ctx.symlink(found[0], "include/" + header)
    ctx.file("BUILD.bazel", """
cc_library(
    name = "{name}",
    hdrs = glob({globs}, allow_empty = False),
    includes = ["include"],
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
""".format(
        name = ctx.attr.library,
        globs = repr([
            "include/" + header + ("/**" if "." not in header else "")
            for header in ctx.attr.headers
        ]),
        linkopts = repr(ctx.attr.linkopts),
    ))

system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "library": attr.string(mandatory = True, doc = "name of the cc_library"),
        "headers": attr.string_list(mandatory = True, doc = "files or folders there"),
        "linkopts": attr.string_list(),
    },
    environ = ["WEIR_INCLUDE_PATH"],
    local = True,
)
