#!/bin/bash
# The encoder on CUDA: batch = single, rows a second by bucket, how busy a fleet keeps the device,
# and what share of the offline ideal that is. At most five minutes; one line where there is no CUDA.
#
#   tests/gpu/run.sh                          # MiniLM where the store holds it, else random weights
#   PYTHON=python3 tests/gpu/run.sh --texts 20000
#   tests/gpu/run.sh --device cpu --texts 300 # a rehearsal without a GPU
#
# It needs PyTorch with CUDA, the packages of `pip install '.[worker,embedded]'`, and nothing of
# batchfleet installed: the package is taken from this tree.
set -euo pipefail
cd "$(dirname "$0")/../.."

python="${PYTHON:-.venv/bin/python}"
command -v "$python" >/dev/null || python=python3
export PYTHONPATH="$PWD/namespace${PYTHONPATH:+:$PYTHONPATH}"
exec timeout --signal=INT 300 "$python" -u tests/gpu/measure.py "$@"
