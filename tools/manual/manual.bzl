"""The folder that //tools/manual:manual writes."""

def _manual_pages_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run(
        executable = ctx.executable.program,
        arguments = [folder.path],
        outputs = [folder],
        mnemonic = "Manual",
    )
    return [DefaultInfo(
        files = depset([folder]),
        runfiles = ctx.runfiles(files = [folder]),
    )]

# The program is built as those that are installed: its objects are there.
manual_pages = rule(
    implementation = _manual_pages_impl,
    attrs = {
        "program": attr.label(executable = True, cfg = "target", mandatory = True),
    },
)
