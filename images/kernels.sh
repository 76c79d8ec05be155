#!/usr/bin/env bash
# images/kernels.sh NAME [VENV [FOLDER]]
#
# Builds the kernels of the row NAME of images/generations.csv from source, against the torch in VENV (/opt/venv), into
# FOLDER (/opt/kernels), hashes checked against the row's lock and locks/kernels.lock, and imports what was compiled. It
# is compiled for the row's compute capabilities alone, which FOLDER/architectures.txt keeps, and for any processor with
# AVX2. $ARCHITECTURES ("80 86") and $KERNELS take the place of the row's. DeepSpeed comes with its Adam for the GPU and
# for the host built in. CUDA_HOME names CUDA, MAX_JOBS is how many compilers run at a time.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
cd "$here/.."
venv=$(readlink -f "${2:-/opt/venv}") folder=$(realpath -m "${3:-/opt/kernels}")
IFS=, read -r _ capabilities _ lock kernels < <(grep "^$1," images/generations.csv) ||
    { echo "kernels.sh: $1 is no row of images/generations.csv" >&2; exit 2; }
export ARCHITECTURES=${ARCHITECTURES:-$capabilities}
read -ra packages <<<"${KERNELS:-$kernels}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
modules=()
for package in "${packages[@]}"; do
    # A requirement, and its hashes on the lines that follow.
    awk -v start="$package==" '/^[a-z0-9]/ { on = index($0, start) == 1 && !seen++ } on' "$lock" locks/kernels.lock \
        >>"$work/wanted"
    case $package in
    flash-attn) modules+=(flash_attn_2_cuda) ;;
    mamba-ssm) modules+=(selective_scan_cuda) ;;
    causal-conv1d) modules+=(causal_conv1d_cuda) ;;
    deepspeed) modules+=(deepspeed.ops.adam.fused_adam_op deepspeed.ops.adam.cpu_adam_op) ;;
    *)
        echo "kernels.sh: $package is none of flash-attn, mamba-ssm, causal-conv1d, deepspeed" >&2
        exit 2
        ;;
    esac
done
mkdir -p "$folder"
printf '%s\n' "$ARCHITECTURES" >"$folder/architectures.txt"

python=$(command -v python3) # one with pip
export PATH=$venv/bin:$CUDA_HOME/bin:$PATH
export PYTORCH_NVCC=$here/nvcc.sh CXX=$here/cxx.sh MAX_JOBS=${MAX_JOBS:-2} NVCC_THREADS=1
# The sources' set-up looks at this one; what it makes of it nvcc.sh throws away, and DeepSpeed, past nvcc.sh, obeys.
TORCH_CUDA_ARCH_LIST=$(sed -E 's/([0-9])( |$)/.\1\2/g' <<<"$ARCHITECTURES")
export TORCH_CUDA_ARCH_LIST
# Left to themselves they would first look for a binary that somebody else built, of which no lock has a hash.
export FLASH_ATTENTION_FORCE_BUILD=TRUE MAMBA_FORCE_BUILD=TRUE CAUSAL_CONV1D_FORCE_BUILD=TRUE
export DS_BUILD_OPS=0 DS_BUILD_FUSED_ADAM=1 DS_BUILD_CPU_ADAM=1
# It would compile them for machines without a GPU where it sees none, and on a GPU leave those alone.
export DS_ACCELERATOR=cuda
"$python" -m pip --python "$venv/bin/python" wheel --no-deps --no-build-isolation --no-cache-dir --require-hashes \
    --wheel-dir "$work/wheels" --requirement "$work/wanted"
# By name: of a wheel that is named by its path, pip notes down that it is from a folder of somebody's own.
PIP_CONFIG_FILE=/dev/null "$python" -m pip --isolated --python "$venv/bin/python" install --no-deps --no-index \
    --no-compile --target "$folder" --find-links "$work/wheels" "${packages[@]}"
if [[ " ${packages[*]} " == *" deepspeed "* ]]; then
    if ! grep --quiet "^accelerator_name='cuda'$" "$folder/deepspeed/git_version_info_installed.py" ||
        ! grep --quiet --recursive --fixed-strings --include='fused_adam_op*.so' .nv_fatbin "$folder/deepspeed"; then
        echo "kernels.sh: the DeepSpeed in $folder was not compiled for GPUs, which would leave its Adams alone" >&2
        exit 1
    fi
fi
PYTHONPATH=$folder "$venv/bin/python" -c \
    'import importlib, sys, torch; [importlib.import_module(name) for name in sys.argv[1:]]' "${modules[@]}"
du -sh "$folder"
