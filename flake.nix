{
  description = "Weir, an inference engine for language models";
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-24.11";

  outputs = { self, nixpkgs }:
    let
      system = "x86_64-linux";
      pkgs = import nixpkgs { inherit system; config.allowUnfree = true; };
    in {
      packages.${system} = rec {
        weir = pkgs.callPackage ./nix/package.nix { src = self; };
        weir-cuda = pkgs.callPackage ./nix/package.nix { src = self; cudaSupport = true; };
        default = weir;
      };
      checks.${system}.weir = self.packages.${system}.weir;
      devShells.${system}.default = pkgs.mkShell { inputsFrom = [ self.packages.${system}.weir ]; };
    };
}
