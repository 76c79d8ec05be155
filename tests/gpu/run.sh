#!/usr/bin/env bash
# tests/gpu/run.sh GPU ARGUMENT ...: run_all.sh with these arguments on a GPU that computes nothing, of driver.cpp;
# tests/gpu/run.sh GPU python FILE ...: a file of this folder on it.
#
# GPU: its name, bytes of memory, capability and multiprocessors, as in "NVIDIA H200,150754820096,9.0,132", and, for more
# than one, how many, as in "NVIDIA H200,150754820096,9.0,132,8".
# Needs g++, and the 9 GiB of requirements.lock, which run_all.sh installs as it does where it sees a GPU. With
# STAND_IN_PYTHON=PYTHON that interpreter's stack is taken as it is, by python -m repro: torch for CUDA 12.8 or 13.0.
# Whatever a run says of time or numbers on it means nothing: publish neither, and give each run a folder of its own.
set -euo pipefail
gpu=${1-}
if [[ ! $gpu =~ ^[^,]+,[0-9]+,[0-9]+\.[0-9],[0-9]+(,[1-8])?$ ]]; then
    echo "run.sh: '$gpu' is no GPU: name, bytes, capability, multiprocessors and, of several, how many up to 8 go first, as NVIDIA H200,150754820096,9.0,132" >&2
    exit 2
fi
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
root=$(cd "$here/../.." && pwd)
made=$root/.venv/stand-in
python=${STAND_IN_PYTHON:-$root/.venv/gpu/bin/python}

mkdir -p "$made/bin"
printf '#!/bin/sh\necho "GPU 0: a stand-in (UUID: GPU-00000000-0000-0000-0000-000000000000)"\n' >"$made/bin/nvidia-smi"
chmod +x "$made/bin/nvidia-smi"
export PATH=$made/bin:$PATH REPRO_CACHE=$made/cache # the compilers' choices are by time, and none of a GPU's
[[ -n ${STAND_IN_PYTHON-} ]] || "$root/run_all.sh" doctor >&2 # sets up

# Made for each torch, with the headers of the CUDA that it brings. Of all that torch and Triton take and driver.cpp has
# not, each function does nothing, and succeeds.
packages=$(dirname "$("$python" -c 'from importlib.util import find_spec; print(*find_spec("torch").submodule_search_locations)')")
made=$made/$("$python" -c 'from importlib.metadata import version; print(version("torch"))')
mkdir -p "$made"
if [[ -n $(find "$here" "$packages/torch/version.py" -newer "$made/libcuda.so.1" 2>&1) ]]; then # or there is none
    headers=()
    for folder in nvidia/cu13 nvidia/cuda_runtime nvidia/cudnn triton/backends/nvidia; do
        headers+=(-isystem "$packages/$folder/include") # CUDA 13's wheels share the first, those before had each its own
    done
    g++ -std=c++17 -O1 -fPIC -Wall "${headers[@]}" -c "$here/driver.cpp" -o "$made/driver.o"
    names() { nm "$@" 2>/dev/null | awk '{print $NF}' | sed 's/@.*//' | grep -E '^_?_?(cu[A-Zd]|cublas|cudnn|nccl)' | sort -u; }
    asked() {
        names -D --undefined-only "$packages"/torch/lib/*.so
        grep -ohE '\bcu[A-Z][A-Za-z0-9]+' "$packages"/triton/backends/nvidia/driver.{c,py}
    }
    comm -23 <(asked | sort -u) <(names --defined-only "$made/driver.o") |
        sed 's/.*/int &(void) { return 0; }/' >"$made/rest.c"
    gcc -O1 -fPIC -w -fno-builtin -c "$made/rest.c" -o "$made/rest.o"
    g++ -shared -o "$made/libcuda.so.1" "$made/driver.o" "$made/rest.o" -ldl
    ln -sf libcuda.so.1 "$made/libnvidia-ml.so.1"
fi

if [[ -z ${STAND_IN_EXCHANGE-} ]]; then # the nodes of one run share theirs
    STAND_IN_EXCHANGE=$(mktemp -d)
    trap 'rm -rf "$STAND_IN_EXCHANGE"' EXIT
    export STAND_IN_EXCHANGE
fi
export STAND_IN=$gpu LD_LIBRARY_PATH=$made LD_PRELOAD=$made/libcuda.so.1
# Of cuDNN it has the older interface alone, which has no attention: torch 2.11 would prefer that on Hopper.
export TORCH_CUDNN_V8_API_DISABLED=1 TORCH_CUDNN_SDPA_DEPRIORITIZED=1
# Its compiler's worker processes sometimes do not end when they are asked to, and the trial waits five minutes for them.
export TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS-1}
if [[ ${2-} == python ]]; then
    PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} "$python" -P "${@:3}"
elif [[ -n ${STAND_IN_PYTHON-}${PYTHONPATH-} ]]; then # run_all.sh drops the caller's PYTHONPATH
    PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} "$python" -P -m repro "${@:2}"
else
    "$root/run_all.sh" "${@:2}"
fi
