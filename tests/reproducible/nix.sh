#!/usr/bin/env bash
# The Nix part of run.sh: nix.sh CHECKOUT WORK, where CHECKOUT holds a Bazel build to compare with.
# Prints lines of "ok" and "FAILED". NIX_BUILDS=1: builds the programs and compares them.
set -uo pipefail
checkout=$1 work=$2
status=0
ok() { echo "ok      $*"; }
bad() { echo "FAILED  $*"; status=1; }
skip() { echo "skipped nix: $*"; exit $status; }

if ! command -v nix-build >/dev/null; then
    message=$("$checkout/bootstrap" nix 2>&1) ||
        skip "it is not installed, and ./bootstrap nix says: $(tail -n 1 <<<"$message")"
fi
# A store of our own: nothing of the machine's is needed, and nothing is left behind.
export NIX_REMOTE='' NIX_STORE_DIR=$work/nix/store NIX_STATE_DIR=$work/nix/var
export NIX_LOG_DIR=$work/nix/log NIX_CONF_DIR=$work/nix/etc HOME=$work/nix/home
export TMPDIR=$work/nix/tmp NIX_PATH=''
mkdir -p "$NIX_STORE_DIR" "$NIX_STATE_DIR" "$NIX_CONF_DIR" "$HOME" "$TMPDIR"
echo 'build-users-group =' >"$NIX_CONF_DIR/nix.conf"
cd "$checkout" || exit 2

for file in flake.nix nix/*.nix nix/stub-nixpkgs/*.nix; do
    if nix-instantiate --parse "$file" >/dev/null; then
        ok "$file parses"
    else
        bad "$file does not parse"
    fi
done

# The package against a stub of nixpkgs: what it asks for, and that CUDA adds inputs.
value=$(nix-instantiate --eval --strict --json --expr '
    let pkgs = import ./nix/stub-nixpkgs { };
        plain = pkgs.callPackage ./nix/package.nix { src = ./nix; };
        cuda = pkgs.callPackage ./nix/package.nix { src = ./nix; cudaSupport = true; };
    in { path = builtins.isString plain.drvPath; program = plain.meta.mainProgram;
         differ = plain.drvPath != cuda.drvPath;
         more = builtins.length cuda.buildInputs > builtins.length plain.buildInputs; }' \
    2>"$work/eval.log")
wanted='{"differ":true,"more":true,"path":true,"program":"serve"}'
if [ "$value" = "$wanted" ]; then
    ok "nix/package.nix evaluates"
else
    bad "nix/package.nix evaluates to $value $(tail -n 5 "$work/eval.log")"
fi

flake=(nix --offline --extra-experimental-features 'nix-command flakes')
if value=$("${flake[@]}" flake check --no-build --no-write-lock-file \
    --override-input nixpkgs "path:$checkout/nix/stub-nixpkgs" "path:$checkout" 2>&1); then
    ok "flake.nix evaluates"
else
    bad "flake.nix: $(tail -n 5 <<<"$value")"
fi

[ "$NIX_BUILDS" = 1 ] || exit $status
start=$SECONDS
identity=$(dpkg-query -W clang-19 libomp-19-dev libdnnl-dev 2>/dev/null | sha256sum | cut -c1-16)
if ! result=$(nix-build nix/default.nix --no-out-link \
    --option sandbox false --option substitute false \
    --arg image true --argstr toolchainId "$identity" 2>"$work/nix.log"); then
    bad "nix-build"
    tail -n 40 "$work/nix.log"
    exit 1
fi
echo "        nix-build took $((SECONDS - start)) s"
for program in serve weir; do
    if cmp -s "$result/bin/$program" ".bazel/bin/engine/cli/$program"; then
        ok "$program of Nix is that of Bazel"
    else
        bad "$program of Nix differs from that of Bazel"
    fi
done
if cmp -s "$result/weir.oci.tar" .bazel/bin/packaging/weir.oci.tar; then
    ok "the image of Nix is that of Bazel"
else
    bad "the image of Nix differs from that of Bazel"
fi
# The installed program finds its configurations.
if (cd / && "$result/bin/serve" --plan >/dev/null 2>"$work/plan.log"); then
    ok "the installed serve plans the demo model"
else
    bad "serve --plan: $(tail -n 3 "$work/plan.log")"
fi
exit $status
