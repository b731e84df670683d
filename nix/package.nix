# Weir with tools and libraries of nixpkgs; see ../flake.nix. On Debian, nix/default.nix builds with
# those of the host.
{ lib, llvmPackages_19, bazel, jdk17_headless
, oneDNN, curl, jansson, tomlplusplus, pcre2, libseccomp, utf8proc, xxHash, zstd, gtest, gbenchmark
, libedit
, cudaPackages ? null, cudaSupport ? false, src ? ../. }:
let
  libraries = [
    oneDNN curl jansson tomlplusplus pcre2 libseccomp utf8proc xxHash zstd gtest gbenchmark
  ];
  includes = lib.concatMapStringsSep ":" (library: "${lib.getDev library}/include") libraries;
  mode = if cudaSupport then "gpu" else "cpu";
in
llvmPackages_19.stdenv.mkDerivation {
  pname = if cudaSupport then "weir-cuda" else "weir";
  version = "0.1";
  inherit src;
  nativeBuildInputs = [ bazel jdk17_headless ]
    ++ lib.optionals cudaSupport [ cudaPackages.cuda_nvcc ];
  buildInputs = libraries ++ [ llvmPackages_19.openmp ]
    ++ lib.optionals cudaSupport [ cudaPackages.cuda_cudart ];
  dontConfigure = true;
  buildPhase = ''
    runHook preBuild
    bazel --batch --output_user_root="$TMPDIR/bazel" build --config=${mode} \
      --spawn_strategy=local --genrule_strategy=local \
      --repo_env=CC=${llvmPackages_19.clang}/bin/clang \
      --repo_env=WEIR_TOOLCHAIN_ID=${llvmPackages_19.clang} \
      --repo_env=WEIR_INCLUDE_PATH=${includes} \
      //engine:serve //engine:weir //engine/api:libweir.so \
      ${lib.optionalString cudaSupport "//offload:weir_gpu"}
    runHook postBuild
  '';
  installPhase = ''
    runHook preInstall
    install -Dm755 -t $out/bin .bazel/bin/engine/cli/serve .bazel/bin/engine/cli/weir
    install -Dm644 -t $out/include include/weir.h
    install -Dm755 .bazel/bin/engine/api/libweir.so $out/lib/libweir.so.0
    ln -s libweir.so.0 $out/lib/libweir.so
    mkdir -p $out/share/weir/models
    cp -r configs $out/share/weir/
    cp -r models/weir-demo $out/share/weir/models/
    ${lib.optionalString cudaSupport "install -Dm755 -t $out/lib .bazel/bin/offload/libweir_gpu.so"}
    runHook postInstall
  '';
  # `weir get` loads libcurl when it runs, `weir chat` libedit.
  postFixup = ''
    patchelf --add-rpath ${lib.getLib curl}/lib:${lib.getLib libedit}/lib $out/bin/weir
  '';
  meta = {
    description = "Inference engine for language models";
    license = lib.licenses.asl20;
    platforms = [ "x86_64-linux" ];
    mainProgram = "serve";
  };
}
