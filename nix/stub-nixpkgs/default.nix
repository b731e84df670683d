# A stub of nixpkgs: enough to evaluate package.nix and flake.nix with no network. Its packages are
# one-line derivations.
{ system ? "x86_64-linux", config ? { } }:
let
  stub = name: derivation {
    inherit name system;
    builder = "/bin/sh";
    args = [ "-c" "echo stub > $out" ];
  };
  lib = {
    optionals = condition: list: if condition then list else [ ];
    optionalString = condition: text: if condition then text else "";
    concatMapStringsSep = separator: f: list: builtins.concatStringsSep separator (map f list);
    getDev = package: package;
    getLib = package: package;
    licenses.asl20.spdxId = "Apache-2.0";
  };
  mkDerivation = a: derivation (builtins.removeAttrs a [ "meta" ] // {
    name = "${a.pname}-${a.version}";
    inherit system;
    src = "${a.src}";
    builder = "/bin/sh";
    args = [ "-c" "echo stub > $out" ];
  }) // { inherit (a) buildInputs; meta = a.meta or { }; };
  self = {
    inherit lib;
    llvmPackages_19 = {
      stdenv = { inherit mkDerivation; };
      clang = stub "clang";
      openmp = stub "openmp";
    };
    cudaPackages = { cuda_nvcc = stub "nvcc"; cuda_cudart = stub "cudart"; };
    mkShell = _: stub "shell";
    callPackage = f: arguments:
      let function = if builtins.isFunction f then f else import f; in
      function (builtins.intersectAttrs (builtins.functionArgs function) self // arguments);
  } // builtins.listToAttrs (map (name: { inherit name; value = stub name; })
    [
      "bazel" "jdk17_headless" "oneDNN" "curl" "jansson" "tomlplusplus" "pcre2" "libseccomp"
      "utf8proc" "xxHash" "zstd" "gtest" "gbenchmark" "libedit"
    ]);
in self
