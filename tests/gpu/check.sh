#!/usr/bin/env bash
# tests/gpu/check.sh: runs what only a GPU's stack runs, on a GPU that computes nothing; see run.sh for what it needs.
#
# It shows that every settings of a search on one GPU and on two is built, compiled for them where it is compiled, launched
# and recorded, that torch's allocator has room for the micro batches that are predicted, that traces have the bytes
# which it allocates, and that one GPU which projects eight takes what each of eight does. It shows nothing of speed, of
# numbers, of what GPUs exchange, nor that a kernel works.
set -euo pipefail
(($# == 0)) || { echo "check.sh: takes no arguments, and $1 is one: its first lines tell what it does" >&2; exit 2; }
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
gpu="NVIDIA H200,150754820096,9.0,132"
scratch=$(mktemp -d)
trap 'echo "gpu: not all held, see $scratch" >&2' EXIT

tests/gpu/run.sh "$gpu,2" --gpus 2 --scale tiny --methods all --models pythia-160m --out "$scratch/search" >/dev/null
tests/gpu/run.sh "$gpu" --gpus 1 --scale tiny --methods free-lunch --models pythia-1b,roberta,convnext,vit \
    --out "$scratch/compiled" >/dev/null
tests/gpu/flash.sh "$scratch/flash-attn"
PYTHONPATH=$scratch/flash-attn tests/gpu/run.sh "$gpu" --gpus 1 --scale tiny --methods free-lunch --with attention=flash \
    --models pythia-160m,pythia-1b --out "$scratch/flash" >/dev/null
# All parts of modern training but CUDA graphs, which it cannot capture; those whose package is missing are left out.
parts=modern+bf16+bf16_weights+fused_attention+channels_last+fp8+no_wrapper+fused_adam
tests/gpu/run.sh "$gpu" --gpus 1 --scale tiny --methods "$parts" --models pythia-160m,roberta,convnext,mamba \
    --out "$scratch/modern" >/dev/null
parts=modern+bf16+fused_cross_entropy+fused_adam+cuda_graphs
tests/gpu/run.sh "$gpu,2" --gpus 2 --scale tiny --methods "$parts" --models pythia-160m --out "$scratch/modern-2" >/dev/null
tests/gpu/run.sh "$gpu" --gpus 1 --scale paper --methods naive --out "$scratch/naive" >/dev/null
tests/gpu/run.sh "$gpu" predict --gpu H200 --methods naive --format json >"$scratch/predicted.json"
.venv/gpu/bin/python -P tests/gpu/held.py "$scratch"
tests/gpu/run.sh "$gpu" python tests/gpu/traced.py >"$scratch/traces.csv"
echo "gpu: $(($(wc -l <"$scratch/traces.csv") - 1)) traces save, and peak at, the bytes that CUDA's torch does"
tests/gpu/run.sh "$gpu,8" python tests/gpu/projected.py 2>"$scratch/projected.log"
trap - EXIT
rm -rf "$scratch"
