"""A library of the system: headers from /usr/include as tracked inputs (symlinked, so nothing else there is visible), linked by flag."""

def _system_library_impl(ctx):
    for header in ctx.attr.headers:
        if not ctx.path("/usr/include/" + header).exists:
            fail("%s: /usr/include/%s is not installed; run ./bootstrap" % (ctx.attr.library, header))
        ctx.symlink("/usr/include/" + header, "include/" + header)
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
        globs = repr(["include/" + header + ("/**" if "." not in header else "") for header in ctx.attr.headers]),
        linkopts = repr(ctx.attr.linkopts),
    ))

system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "library": attr.string(mandatory = True, doc = "name of the cc_library"),
        "headers": attr.string_list(mandatory = True, doc = "files or folders below /usr/include"),
        "linkopts": attr.string_list(),
    },
    local = True,
)
