#!/usr/bin/env bash
# tests/gpu/flash.sh FOLDER: installs flash-attn of locks/kernels.lock into FOLDER for the GPU that computes nothing: its
# Python and its C++ as they are, built against requirements.lock's torch, and of its kernels, hours of nvcc, the names
# alone. Then: PYTHONPATH=FOLDER tests/gpu/run.sh GPU --with attention=flash ...
set -euo pipefail
(($# == 1)) || { echo "flash.sh: takes one argument, the folder to install flash-attn into" >&2; exit 2; }
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
venv=$root/.venv/gpu
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip=("$(command -v python3)" -m pip --quiet --python "$venv/bin/python") # its own, not what FOLDER makes of it

awk '/^[a-z0-9]/ { on = /^flash-attn==/ } on' "$root/locks/kernels.lock" >"$work/wanted"
export FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE FLASH_ATTENTION_FORCE_BUILD=TRUE PATH=$venv/bin:$PATH
taken=(--no-deps --no-build-isolation --require-hashes --requirement "$work/wanted")
"${pip[@]}" install --target "$folder" --upgrade "${taken[@]}"
"${pip[@]}" download --dest "$work" --no-binary flash-attn "${taken[@]}"
mkdir "$work/source"
tar -xf "$work"/flash*attn*.tar.gz -C "$work/source" --strip-components 1

cat >"$work/kernels.cpp" <<'CPP'
#include <ATen/cuda/CUDAContext.h>
#include "flash.h"
#include <cutlass/numeric_types.h>
namespace FLASH_NAMESPACE {
template <typename T, int D, bool C> void run_mha_fwd_(Flash_fwd_params &, cudaStream_t) {}
template <typename T, int D, bool C> void run_mha_fwd_splitkv_dispatch(Flash_fwd_params &, cudaStream_t) {}
template <typename T, int D, bool C> void run_mha_bwd_(Flash_bwd_params &, cudaStream_t) {}
#define OF(T, D, C)                                                                   \
    template void run_mha_fwd_<T, D, C>(Flash_fwd_params &, cudaStream_t);                 \
    template void run_mha_fwd_splitkv_dispatch<T, D, C>(Flash_fwd_params &, cudaStream_t); \
    template void run_mha_bwd_<T, D, C>(Flash_bwd_params &, cudaStream_t);
#define OF_EACH(T, D) OF(T, D, true) OF(T, D, false)
#define OF_WIDTH(D) OF_EACH(cutlass::half_t, D) OF_EACH(cutlass::bfloat16_t, D)
OF_WIDTH(32) OF_WIDTH(64) OF_WIDTH(96) OF_WIDTH(128) OF_WIDTH(192) OF_WIDTH(256)
}
CPP
sources=$work/source/csrc
options=(-std=c++17 -O1 -fPIC -w -shared -DTORCH_EXTENSION_NAME=flash_attn_2_cuda -DTORCH_API_INCLUDE_EXTENSION_H)
options+=(-I"$sources/flash_attn" -I"$sources/flash_attn/src" -I"$sources/cutlass/include")
options+=(-isystem "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')")
for include in "$site"/torch/include{,/torch/csrc/api/include} "$site"/nvidia/*/include{,/cccl}; do
    options+=(-isystem "$include")
done
g++ "${options[@]}" "$sources/flash_attn/flash_api.cpp" "$work/kernels.cpp" -o "$folder/flash_attn_2_cuda.so" \
    -L"$site/torch/lib" -ltorch -ltorch_cpu -ltorch_cuda -ltorch_python -lc10 -lc10_cuda
