"""Packages of what //:install installs."""

def _installed_impl(ctx):
    out = ctx.actions.declare_file(ctx.attr.out)
    install = ctx.executable.install
    ctx.actions.run_shell(
        outputs = [out],
        inputs = [ctx.file.script] + ctx.files.modules + ctx.files.scripts,
        tools = [ctx.attr.install[DefaultInfo].files_to_run],
        arguments = [install.path, ctx.file.script.path, out.path],
        command = """
            set -eu
            top=$PWD root=$PWD/root
            (cd "$1.runfiles/weir" && DESTDIR="$root" "$top/$1" --prefix /usr --without-serve \
                --libdir lib/x86_64-linux-gnu >/dev/null)
            version=$(sed -n 's/^Version: //p' "$root/usr/lib/x86_64-linux-gnu/pkgconfig/weir.pc")
            mkdir -p "$root/etc/weir" "$top/scripts"
            mv "$root/usr/share/doc/weir/weir.toml" "$root/etc/weir/weir.toml"
            %s
            export PYTHONDONTWRITEBYTECODE=1
            python3 "$2" --root "$root" --version "$version" --out "$3" %s
        """ % (
            "\n".join(["cp %s scripts/" % file.path for file in ctx.files.scripts]),
            "--scripts scripts" if ctx.files.scripts else "",
        ),
        use_default_shell_env = True,
        mnemonic = "Package",
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles(files = [out]))]

# `script` makes a file of the installed tree: SCRIPT --root FOLDER --version N --out FILE.
installed_package = rule(
    implementation = _installed_impl,
    attrs = {
        # Built as it is for others, so that the objects are there.
        "install": attr.label(executable = True, cfg = "target", mandatory = True),
        "modules": attr.label_list(allow_files = True),
        "out": attr.string(mandatory = True),
        "script": attr.label(allow_single_file = True, mandatory = True),
        "scripts": attr.label_list(allow_files = True),
    },
)
