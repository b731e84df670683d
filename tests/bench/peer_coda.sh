#!/usr/bin/env bash
# One layer of CoDA-GQA-L and its authors' package coda-gqa-l (PyTorch), on the same CPU in the
# same run: prefill tokens/s and decode steps/s of both, ratios, and Weir's steps as a share of what
# bandwidth allows; as a table, or as one JSON object.
#
#   tests/bench/peer_coda.sh [--json] [--shape WIDTH/HEADS/KV_HEADS/HEAD_DIM]...
#                            [--dtype f32|bf16]... [--block N]... [--turns N]
#
# Default: both shapes 4096/32/8/128 and 1024/16/4/64, both types, blocks of 256 and 1024; window
# 256, 64 slots in each bank, 2048 tokens. Weir runs a model of this one layer (random weights, a
# vocabulary of 32, 16 hidden units after it): what it does besides the layer counts against it, at
# most 3 % of the bytes of a step. The package is installed once, with PyTorch: some 5 GB.
#   PEER_DIR      where to install (default: $XDG_CACHE_HOME/weir/peer_coda, else
#                 ~/.cache/weir/peer_coda)
#   PEER_THREADS  threads of both (default: number of cores)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
dir=${PEER_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/peer_coda}
threads=${PEER_THREADS:-$(nproc)}
shapes=() dtypes=() blocks=() turns=3 json=()

die() { echo "peer_coda.sh: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
    case $1 in
        --json) json=(--json); shift ;;
        --shape) shapes+=("${2:?--shape needs WIDTH/HEADS/KV_HEADS/HEAD_DIM}"); shift 2 ;;
        --dtype) dtypes+=("${2:?--dtype needs f32 or bf16}"); shift 2 ;;
        --block) blocks+=("${2:?--block needs a number}"); shift 2 ;;
        --turns) turns=${2:?--turns needs a number}; shift 2 ;;
        -h|--help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) die "unknown argument $1; see --help" ;;
    esac
done
[ ${#shapes[@]} -gt 0 ] || shapes=(4096/32/8/128 1024/16/4/64)
[ ${#dtypes[@]} -gt 0 ] || dtypes=(f32 bf16)
[ ${#blocks[@]} -gt 0 ] || blocks=(256 1024)

command -v python3 >/dev/null || die "python3 is missing; install python3 and python3-venv"
if ! "$dir/bin/python" -c 'import coda_gqa_l' 2>/dev/null; then
    python3 -m venv "$dir" ||
        die "no virtual environment in $dir; install python3-venv or set PEER_DIR"
    "$dir/bin/pip" install --quiet torch==2.15.0 coda-gqa-l==1.3.1 numpy >&2 ||
        die "the package could not be installed in $dir; is there a network?"
fi
(cd "$top" && bazel build --config=ci //engine:weir) >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$dir/bin/python" -B "$here/peer_coda.py" \
    --weir "$top/.bazel/bin/engine/cli/weir" --arch "$top/configs/arch/llama.toml" \
    --work "$work" \
    --threads "$threads" --turns "$turns" --shapes "${shapes[@]}" --dtypes "${dtypes[@]}" \
    --blocks "${blocks[@]}" "${json[@]}"
