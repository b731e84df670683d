#!/usr/bin/env bash
# Proves that the commit decides the bits: two clean checkouts in different folders, built with different output bases and no shared cache,
# give the same programs; Nix gives the same `serve`; and an include that no dependency allows stops the build.
#
#   tests/reproducible/run.sh [TARGET...]    default //engine:serve //engine:weir, and //offload:weir_gpu where a CUDA toolkit is
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
root=$PWD
commit=$(git rev-parse HEAD) || exit 2
passed=0 failed=0
ok() { passed=$((passed + 1)); echo "ok      $*"; }
bad() { failed=$((failed + 1)); echo "FAILED  $*"; }

# Never below /tmp: the GPU build hides it from its actions.
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}
mkdir -p "$cache/weir" 2>/dev/null || cache=/var/tmp
case $(realpath "$cache") in /tmp | /tmp/*) cache=/var/tmp ;; esac
mkdir -p "$cache/weir"
work=$(mktemp -d "$cache/weir/reproducible.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

targets=("$@")
[ $# -gt 0 ] || targets=(//engine:serve //engine:weir)
gpu=0
[ $# -gt 0 ] || [ ! -x /usr/local/cuda/bin/nvcc ] || gpu=1

# No configuration but the checkout's and Debian's: a disk cache in somebody's .bazelrc would make the comparison one of a file with itself.
in_checkout() {
    local name=$1
    shift
    (cd "$work/$name/weir" && bazel --batch --nohome_rc --output_user_root="$work/$name/bazel" "$@" 2>&1)
}

# Prints "sha256 name" of every program of a checkout; aliases build elsewhere, so files are looked for by name.
sums() {
    local target
    for target in "${targets[@]}"; do
        in_checkout_files "$1" -name "${target##*:}"
    done
    [ "$gpu" = 0 ] || in_checkout_files "$1" -name libweir_gpu.so
}
in_checkout_files() {
    local name=$1
    shift
    (cd -P "$work/$name/weir/.bazel/bin" && find . -name '*.runfiles' -prune -o -type f "$@" -print0 | sort -z | xargs -0 -r sha256sum)
}

for name in first the-second/and-deeper; do
    mkdir -p "$work/$name/weir"
    git archive "$commit" | tar -x -C "$work/$name/weir"
    start=$SECONDS
    in_checkout "$name" build --config=cpu "${targets[@]}" >"$work/log" || { bad "build in $name"; tail -n 40 "$work/log"; }
    [ "$gpu" = 0 ] || in_checkout "$name" build --config=gpu //offload:weir_gpu >"$work/log" || { bad "GPU build in $name"; tail -n 40 "$work/log"; }
    echo "        built $name in $((SECONDS - start)) s"
    sums "$name" >"$work/sums.${name%%/*}"
done
if [ "$failed" = 0 ] && [ -s "$work/sums.first" ]; then
    while read -r sum file; do
        if grep -qxF "$sum  $file" "$work/sums.the-second"; then ok "$file ${sum:0:16} in both checkouts"; else bad "$file differs between the checkouts"; fi
    done <"$work/sums.first"
else
    bad "nothing to compare"
fi

# An include of a header that no dependency brings, and a dependency upwards.
broken=$work/first/weir
sed -i '0,/^#include </s//#include "kernels\/abi\/ops.h"\n&/' "$broken/offload/ledger.c"
if in_checkout first build --config=cpu //offload:ledger >"$work/log"; then
    bad "an include without a dependency was accepted"
elif grep -q "does not depend on a module exporting 'kernels/abi/ops.h'" "$work/log"; then
    ok "an include without a dependency is refused"
else
    bad "an include without a dependency failed otherwise"; tail -n 20 "$work/log"
fi
sed -i '/name = "ledger",/,/deps = / s|deps = \[|&"//engine/model", |' "$broken/offload/BUILD.bazel"
if in_checkout first build --nobuild --config=cpu //offload:ledger >"$work/log"; then
    bad "a dependency upwards was accepted"
elif grep -q 'includes go downwards only' "$work/log"; then
    ok "a dependency upwards is refused"
else
    bad "a dependency upwards failed otherwise"; tail -n 20 "$work/log"
fi

# A compiler of another version must not be used, and must not find objects in a cache.
sed -i -E 's/^(build clang-19 +).*/\11:0.0/' "$broken/toolchain/packages.txt"
if in_checkout first build --nobuild --config=cpu //engine/base >"$work/log"; then
    bad "a compiler of another version was accepted"
elif grep -q 'run ./bootstrap' "$work/log"; then
    ok "a compiler of another version is refused"
else
    bad "a compiler of another version failed otherwise"; tail -n 20 "$work/log"
fi

if [ $# = 0 ]; then
    if "$root/tests/reproducible/nix.sh" "$work/the-second/and-deeper/weir" "$work" >"$work/log"; then cat "$work/log"; else cat "$work/log"; fi
    passed=$((passed + $(grep -c '^ok ' "$work/log"))) failed=$((failed + $(grep -c '^FAILED ' "$work/log")))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
