#!/usr/bin/env bash
# Weir and its peer llama.cpp, on the same GGUF in the same run: prints one JSON object with the
# ratios, the raw figures, load and bandwidth.
#
#   tests/bench/peer.sh [--json] [--model FILE.gguf] [--depth N] [--type q8_0|q4_0] [--turns N]
#   tests/bench/peer.sh --streams LIST [--prompt N] [--gen N] [--model FILE.gguf]
#                       [--type q8_0|q4_0] [--turns N]
#   tests/bench/peer.sh --server LIST [--prompt N] [--gen N] [--other FILE] [--model ...]
#
# --streams: the tables of both for these numbers of sequences at a time, of --prompt tokens (64)
# each and --gen (32) decoded.
# --server: streams.py with llama-server. --other: one more llama-server, such as that of
# ik_llama.cpp.
# Without --model a model of Qwen3.5-0.8B's shape with random weights is written
# (tests/bench/random_model.py). The peer is built once from the source package llama-cpp-python
# with native flags; about 15 minutes on 2 cores. Measure on an idle machine. --depth 0 leaves the
# deep part out; at 8192 a turn takes some 5 minutes, most of it the peer's.
#   PEER_DIR      where to build (default: $XDG_CACHE_HOME/weir/peer, else ~/.cache/weir/peer)
#   PEER_THREADS  threads of both (default: number of cores)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
package=llama-cpp-python version=0.3.36
dir=${PEER_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/peer}
threads=${PEER_THREADS:-$(nproc)}
model='' depth=8192 type=q8_0 turns=3 streams='' servers='' other='' n_prompt=64 n_gen=32

die() { echo "peer.sh: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
    case $1 in
        --json) shift ;; # the only output there is
        --model) model=${2:?--model needs a file}; shift 2 ;;
        --depth) depth=${2:?--depth needs a number}; shift 2 ;;
        --type) type=${2:?--type needs a name}; shift 2 ;;
        --streams) streams=${2:?--streams needs a list}; shift 2 ;;
        --server) servers=${2:?--server needs a list}; shift 2 ;;
        --other) other=${2:?--other needs a file}; shift 2 ;;
        --prompt) n_prompt=${2:?--prompt needs a number}; shift 2 ;;
        --gen) n_gen=${2:?--gen needs a number}; shift 2 ;;
        --turns) turns=${2:?--turns needs a number}; shift 2 ;;
        -h|--help) sed -n '2,19s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) die "unknown argument $1; see --help" ;;
    esac
done

targets=(llama-bench llama-batched-bench)
[ -z "$servers" ] || targets+=(llama-server)

build_peer() {
    local target missing=''
    for target in "${targets[@]}"; do
        [ -x "$dir/build/bin/$target" ] || missing=$target
    done
    [ -n "$missing" ] || return 0
    for tool in python3 cmake c++; do
        command -v $tool >/dev/null || die "$tool is missing; install python3-pip cmake g++"
    done
    mkdir -p "$dir"
    local source=$dir/llama_cpp_python-$version/vendor/llama.cpp
    if [ ! -d "$source" ]; then
        python3 -m pip download --quiet --no-deps --no-binary :all: -d "$dir" \
            "$package==$version" >&2
        tar -xzf "$dir/llama_cpp_python-$version.tar.gz" -C "$dir"
    fi
    cmake -S "$source" -B "$dir/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
        -DCMAKE_C_FLAGS="$1" -DCMAKE_CXX_FLAGS="$1" -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_OPENSSL=OFF >&2
    cmake --build "$dir/build" -j "$threads" --target "${targets[@]}" >&2
    echo "native $1" >"$dir/build/flags"
}

peer() { "$dir/build/bin/llama-bench" -m "$model" -t "$threads" -r 3 -o json "$@" 2>/dev/null; }

# A peer that dies in its first prompt is no peer: on some machines its AMX code does (illegal
# instruction), and it is built again without.
check_peer() {
    peer -r 1 -p 32 -n 1 >/dev/null && return
    grep -q mno-amx "$dir/build/flags" &&
        die "the peer's llama-bench fails on $model; run it by hand:" \
            "$dir/build/bin/llama-bench -m $model -p 32"
    echo "peer.sh: the peer fails with native flags, building it without AMX" >&2
    rm -rf "$dir/build"
    build_peer "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    check_peer
}

build_peer ""
(cd "$top" && bazel build //engine:weir >&2)
weir=$top/.bazel/bin/engine/cli/weir
if [ -z "$model" ]; then
    model=$dir/random-0.8B-$type.gguf
    [ -f "$model" ] || {
        python3 "$here/random_model.py" "$model.part" --type "$type" && mv "$model.part" "$model"
    }
fi
[ -r "$model" ] || die "$model: cannot be read"
check_peer

if [ -n "$streams" ]; then
    most=$(tr ',' '\n' <<<"$streams" | sort -n | tail -n 1)
    for _ in $(seq "$turns"); do
        "$weir" bench --model "$model" --threads "$threads" --streams "$streams" \
            --prompt "$n_prompt" --gen "$n_gen" --repeat 1
        "$dir/build/bin/llama-batched-bench" -m "$model" -c $((most * (n_prompt + n_gen + 32))) \
            -b 512 -ub 512 -npp "$n_prompt" -ntg "$n_gen" -npl "$streams" -t "$threads" \
            -tb "$threads" 2>/dev/null
    done
    exit
fi

if [ -n "$servers" ]; then
    peers=(--peer "llama.cpp=$dir/build/bin/llama-server")
    [ -z "$other" ] || peers+=(--peer "other=$other")
    exec python3 "$here/streams.py" "$weir" --model "$model" "${peers[@]}" --streams "$servers" \
        --prompt "$n_prompt" --answer "$n_gen" --threads "$threads" --turns "$turns"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cut -d' ' -f1-3 /proc/loadavg >"$work/load"
cp "$dir/build/flags" "$work/flags"
# One run of ours; what it reports goes to stdout.
ours() { "$weir" bench --model "$model" --threads "$threads" --repeat 3 --json "$@"; }
# In turns, so that a change of the machine's bandwidth between processes does not favour one of
# them.
for turn in $(seq "$turns"); do
    ours --prompt 512 --gen 32 --depth 0 >"$work/weir.short.$turn"
    peer -p 512 -n 32 >"$work/peer.short.$turn"
    [ "$depth" -gt 0 ] || continue
    ours --prompt 0 --gen 16 --depth "$depth" >"$work/weir.deep.$turn"
    peer -p 0 -n 16 -d "$depth" -fa 1 >"$work/peer.deep.$turn"
    ours --prompt 0 --gen 16 --depth "$depth" --kv-format q8_0 >"$work/weir.deep_q8_0.$turn"
    peer -p 0 -n 16 -d "$depth" -fa 1 -ctk q8_0 -ctv q8_0 >"$work/peer.deep_q8_0.$turn"
done
python3 - "$work" "$model" "$threads" "$depth" <<'PYTHON'
import glob, json, os, statistics, sys
work, model, threads, depth = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
load = lambda name: [json.load(open(f)) for f in sorted(glob.glob(os.path.join(work, name + ".*")))]
weir, peer = load("weir.short"), load("peer.short")
rate = lambda runs, key: [r["rows"][0][key]["median"] for r in runs]
def peer_rate(runs, key):
    other = "n_prompt" if key == "n_gen" else "n_gen"
    return [statistics.median(row["samples_ts"]) for run in runs for row in run
            if row[key] > 0 and row[other] == 0]
def first_rows(runs, key):
    return [r["rows"][0][key] for r in runs]
def text(name):
    return open(os.path.join(work, name)).read().strip()
out = {
    "peer": "llama.cpp in llama-cpp-python 0.3.36",
    "model": os.path.basename(model),
    "peer_flags": text("flags"),
    "threads": threads,
    "load": text("load"),
    "bandwidth_gb_per_second": first_rows(weir, "bandwidth_gb_per_second"),
    "weir": {
        "decode": rate(weir, "decode_tokens_per_second"),
        "prefill": rate(weir, "prefill_tokens_per_second"),
        "bandwidth_share": first_rows(weir, "bandwidth_share"),
        "peak_rss_bytes": [r["peak_rss_bytes"] for r in weir],
        "load_seconds": [r["load_seconds"] for r in weir],
    },
    "peer_figures": {"decode": peer_rate(peer, "n_gen"), "prefill": peer_rate(peer, "n_prompt")},
}
median = statistics.median
out["ratios"] = {k: median(out["weir"][k]) / median(out["peer_figures"][k])
                 for k in ("decode", "prefill")}
if depth:
    out["depth"] = depth
    for name in ("deep", "deep_q8_0"): # f16 and q8_0 KV
        ours, theirs = load("weir." + name), load("peer." + name)
        key = "decode_" + name
        out["weir"][key] = rate(ours, "decode_tokens_per_second")
        for what in ("bandwidth_share", "bandwidth_gb_per_second"):
            out["weir"][what + "_" + name] = first_rows(ours, what)
        out["peer_figures"][key] = peer_rate(theirs, "n_gen")
        out["ratios"][key] = median(out["weir"][key]) / median(out["peer_figures"][key])
print(json.dumps(out, indent=2))
PYTHON
