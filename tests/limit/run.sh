#!/bin/sh
# tests/limit/run.sh - builds //engine:serve and holds it to its memory limit (limit.py): 64 MiB are
# 20 MiB of KV and requests for the demo model. Then with a disk, which gets full: the windows of
# eight sequences are three times the KV pages that memory has. Then with 64 threads for requests.
# experts.py: a mixture twice its budget. resident.py: what the process holds is what is charged.
#   tests/limit/run.sh [SECONDS] [THREADS]
# THREADS: also with this many that compute, which may be more than there are cores.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
programs=$("$here/../programs.sh")
serve=$programs/serve
python3 "$here/limit.py" "$serve" --memory 64 --seconds "${1:-12}"
python3 "$here/limit.py" "$serve" --memory 72 --disk 24 --seconds "${1:-12}"
python3 "$here/limit.py" "$serve" --memory 80 --workers 64 --clients 64 \
    --seconds "${1:-12}"
[ -z "${2:-}" ] ||
    python3 "$here/limit.py" "$serve" --memory 160 --threads "$2" \
        --seconds "${1:-12}"
python3 "$here/experts.py" "$serve"
exec python3 "$here/resident.py" "$serve"
