#!/usr/bin/env bash
# Proves that the sources decide the bits: this checkout, built incrementally, and a clean one in
# another folder with an output base of its own give the same programs; the files for Nix evaluate;
# and an include that no dependency allows stops the build.
#
#   tests/reproducible/run.sh [--objects DIR] [--long] [TARGET...]
#
# TARGET: //engine:serve //engine:weir. The clean checkout compiles everything, or with --objects
# the folders of `compiled` below: other objects come from this disk cache if one of the same
# command and the same contents of all its inputs is there. All else that makes programs runs again.
# --long: also the container image and //offload:weir_gpu, where a CUDA toolkit is, and Nix builds
# the same programs and image. WEIR_SANDBOX: a folder on tmpfs for the actions of the clean
# checkout, for speed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
root=$PWD
export NIX_BUILDS=0
objects=
while :; do
    case ${1:-} in
    --long) NIX_BUILDS=1; shift ;;
    --objects) objects=$(realpath -m "$2"); shift 2 ;;
    -*) echo "reproducible: unknown option $1" >&2; exit 2 ;;
    *) break ;;
    esac
done
# The tracked files as they lie here, changed or not.
sources=$(git -c user.name=weir -c user.email=weir@localhost stash create) || {
    echo "FAILED  git has no tree of this checkout: commit, or undo what is only half added"
    exit 2
}
sources=${sources:-HEAD}
passed=0 failed=0
ok() { passed=$((passed + 1)); echo "ok      $*"; }
bad() { failed=$((failed + 1)); echo "FAILED  $*"; }

# Never below /tmp: the GPU build hides it from its actions.
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}
mkdir -p "$cache/weir" 2>/dev/null || cache=/var/tmp
case $(realpath "$cache") in /tmp | /tmp/*) cache=/var/tmp ;; esac
mkdir -p "$cache/weir"
work=$(mktemp -d "$cache/weir/reproducible.XXXXXX")
trap 'in_clean shutdown >"$work/log"; chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

targets=("$@")
[ $# -gt 0 ] || targets=(//engine:serve //engine:weir)
image=0 gpu=0
[ "$NIX_BUILDS" = 0 ] || [ $# -gt 0 ] || image=1
[ "$NIX_BUILDS" = 0 ] || [ $# -gt 0 ] || [ ! -x /usr/local/cuda/bin/nvcc ] || gpu=1

# Compiled again with --objects: C, C++, and a kernel.
compiled=(//engine/base/... //engine/config/... //kernels/ref/... //kernels/x86:matmul_tiles_v2)
# Every action but the compiler of C and C++: links, archives, tables, the page, the manual.
not_compiled='(?!CppCompile$).*=+no-cache'

# In the clean checkout no configuration but its own and Debian's: a disk cache in somebody's
# .bazelrc would compare a file with itself. --objects does so, but for what is compiled again.
clean=$work/clean/and-deeper/weir
here() { (cd "$root" && bazel "$@" 2>&1); }
in_clean() {
    (cd "$clean" &&
        bazel --nohome_rc --output_user_root="$work/bazel" --max_idle_secs=600 "$@" 2>&1)
}

# build RUN NAME [OPTION...]: all programs, with the function that runs Bazel in a checkout.
build() {
    local start=$SECONDS
    "$1" build --config=cpu "${@:3}" "${targets[@]}" >"$work/log" || {
        bad "build $2"
        tail -n 40 "$work/log"
    }
    sed -n 's/^INFO: \([0-9]* process.*\)/        \1/p' "$work/log"
    [ "$image" = 0 ] || "$1" build --config=cpu "${@:3}" //packaging:image >"$work/log" || {
        bad "image $2"
        tail -n 40 "$work/log"
    }
    [ "$gpu" = 0 ] || "$1" build --config=gpu "${@:3}" //offload:weir_gpu >"$work/log" || {
        bad "GPU build $2"
        tail -n 40 "$work/log"
    }
    echo "        built $2 in $((SECONDS - start)) s"
}

# Prints "sha256 name" of every program of a checkout; aliases build elsewhere, so files are looked
# for by name.
sums() {
    local names=() target
    for target in "${targets[@]}"; do names+=(-o -name "${target##*:}"); done
    [ "$gpu" = 0 ] || names+=(-o -name libweir_gpu.so)
    [ "$image" = 0 ] || names+=(-o -name weir.oci.tar)
    (cd -P "$1/.bazel/bin" &&
        find . -name '*.runfiles' -prune -o -type f \( "${names[@]:1}" \) -print0 |
        sort -z | xargs -0 -r sha256sum)
}

# Objects of `compiled`, with their inodes and times.
objects_of() {
    (cd -P "$clean/.bazel/bin" &&
        find engine/base engine/config kernels/ref kernels/x86 -path '*_objs*' -name '*.o' \
            -printf '%p %i %T@\n' | LC_ALL=C sort)
}
cached=()
[ -z "$objects" ] || cached=("--disk_cache=$objects")
build here "in this checkout" "${cached[@]}"
sums "$root" >"$work/sums.here"
mkdir -p "$clean"
git archive "$sources" | tar -x -C "$clean"
sandbox=(${WEIR_SANDBOX:+"--sandbox_base=$WEIR_SANDBOX"})
if [ -n "$objects" ]; then
    in_clean build --config=cpu "${sandbox[@]}" \
        "${compiled[@]}" >"$work/log" || { bad "compile ${compiled[*]}"; tail -n 40 "$work/log"; }
    objects_of >"$work/objects"
    [ -s "$work/objects" ] || bad "nothing was compiled again"
    cached+=("--modify_execution_info=$not_compiled")
fi
build in_clean "in a clean checkout" "${cached[@]}" "${sandbox[@]}"
if [ -n "$objects" ] && objects_of | LC_ALL=C comm -23 "$work/objects" - | grep -q .; then
    bad "what was compiled again was replaced by objects of the cache"
fi
sums "$clean" >"$work/sums.clean"
if [ "$failed" = 0 ] && [ -s "$work/sums.clean" ]; then
    while read -r sum file; do
        if grep -qxF "$sum  $file" "$work/sums.here"; then
            ok "$file ${sum:0:16} here and in the clean checkout"
        else
            bad "$file differs in the clean checkout"
        fi
    done <"$work/sums.clean"
else
    bad "nothing to compare"
fi

if [ $# = 0 ]; then
    "$root/tests/reproducible/nix.sh" "$clean" "$work" >"$work/log" ||
        grep -q '^FAILED ' "$work/log" || bad "nix.sh ended early"
    cat "$work/log"
    passed=$((passed + $(grep -c '^ok ' "$work/log")))
    failed=$((failed + $(grep -c '^FAILED ' "$work/log")))
fi

# What must stop a build, done to the clean checkout: an include of a header that no dependency
# brings, and a dependency upwards.
sed -i '0,/^#include </s//#include "kernels\/abi\/ops.h"\n&/' "$clean/offload/ledger.c"
if in_clean build --config=cpu //offload:ledger >"$work/log"; then
    bad "an include without a dependency was accepted"
elif grep -q "does not depend on a module exporting 'kernels/abi/ops.h'" "$work/log"; then
    ok "an include without a dependency is refused"
else
    bad "an include without a dependency failed otherwise"; tail -n 20 "$work/log"
fi
sed -i '/name = "ledger",/,/deps = / s|deps = \[|&"//engine/model", |' "$clean/offload/BUILD.bazel"
if in_clean build --nobuild --config=cpu //offload:ledger >"$work/log"; then
    bad "a dependency upwards was accepted"
elif grep -q 'includes go downwards only' "$work/log"; then
    ok "a dependency upwards is refused"
else
    bad "a dependency upwards failed otherwise"; tail -n 20 "$work/log"
fi

# A compiler of another version must not be used, and must not find objects in a cache.
sed -i -E 's/^(build clang-19 +).*/\11:0.0/' "$clean/toolchain/packages.txt"
if in_clean build --nobuild --config=cpu //engine/base >"$work/log"; then
    bad "a compiler of another version was accepted"
elif grep -q 'run ./bootstrap' "$work/log"; then
    ok "a compiler of another version is refused"
else
    bad "a compiler of another version failed otherwise"; tail -n 20 "$work/log"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
