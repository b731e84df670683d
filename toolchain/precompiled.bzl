"""A header compiled once for many C++ sources: `-include-pch`."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features + ["module_maps"],
    )
    out = ctx.actions.declare_file(ctx.label.name + ".inc")
    command = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts +
                                 ctx.attr.copts,
            use_pic = True,
        ),
    )
    compiler = cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
    )
    headers = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps]
    ctx.actions.run_shell(
        command = 'out=$PWD/$1 header=$PWD/$2; shift 2; cd / && exec "$@" -o "$out" - <"$header"',
        arguments = [out.path, ctx.file.header.path, compiler, "-x", "c++-header"] + command,
        inputs = depset([ctx.file.header], transitive = headers + [toolchain.all_files]),
        outputs = [out],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling " + ctx.file.header.short_path,
    )
    return [DefaultInfo(files = depset([out]))]

precompiled_header = rule(
    doc = """NAME.inc, which sources with the same options take by -include-pch.

    Its name is that of a header so that cc_library takes it among its hdrs. Clang writes absolute
    paths into it: the header is read from standard input in the folder /, and may include headers
    of the system only, those of `deps` among them, so that no path of a sandbox is in it. Users
    need -fno-validate-pch: Bazel compares the headers.
    """,
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        "copts": attr.string_list(doc = "in addition to those of the command line"),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
