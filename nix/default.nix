# The build with the tools of a Debian host, offline: nix-build nix/default.nix gives the bits of
# `bazel build --config=cpu`. The tools are not Nix inputs, so name them:
#     --argstr toolchainId "$(dpkg-query -W clang-19 libomp-19-dev libdnnl-dev | sha256sum)"
# With `--arg image true` also weir.oci.tar, the container image of //packaging:image.
# On other systems use the flake, which takes its tools from nixpkgs.
{ config ? "cpu"
, image ? false
, toolchainId ? "unset"
, src ? builtins.path {
    path = ../.;
    name = "weir-source";
    filter = path: type:
      !(builtins.elem (baseNameOf path) [ ".git" ".bazel" "user.bazelrc" "result" ]);
  }
}:
derivation {
  name = "weir-${config}";
  system = builtins.currentSystem;
  builder = "/bin/bash";
  inherit config src toolchainId image;
  PATH = "/usr/local/cuda/bin:/usr/bin:/bin";
  LANG = "C.UTF-8";
  SOURCE_DATE_EPOCH = "1";
  args = [ "-euc" ''
    export HOME="$NIX_BUILD_TOP/home"
    mkdir -p "$HOME"
    cp -r "$src" "$NIX_BUILD_TOP/source"
    chmod -R u+w "$NIX_BUILD_TOP/source"
    cd "$NIX_BUILD_TOP/source"
    bazel --batch --output_user_root="$NIX_BUILD_TOP/bazel" build --config="$config" \
      //engine:serve //engine:weir
    mkdir -p "$out/bin" "$out/lib" "$out/share/weir/models"
    cp -L .bazel/bin/engine/cli/serve .bazel/bin/engine/cli/weir "$out/bin/"
    if [ "$config" = gpu ]; then
      bazel --batch --output_user_root="$NIX_BUILD_TOP/bazel" build --config=gpu //offload:weir_gpu
      cp -L .bazel/bin/offload/libweir_gpu.so "$out/lib/"
    fi
    if [ "$image" = 1 ]; then
      bazel --batch --output_user_root="$NIX_BUILD_TOP/bazel" build --config="$config" \
        //packaging:image
      cp -L .bazel/bin/packaging/weir.oci.tar "$out/"
    fi
    cp -r configs "$out/share/weir/"
    cp -r models/weir-demo "$out/share/weir/models/"
    chmod -R u+w "$NIX_BUILD_TOP/bazel"
    # A builtin last: bash would become the last command, which closes stdout before it ends, and
    # Nix kills it then.
    exit 0
  '' ];
}
