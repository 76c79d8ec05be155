#!/usr/bin/env bash
# locks/install.sh [--repair] VENV LOCK ...
#
# Makes VENV, a virtual environment of Python 3.11, and installs the locks into it, in their order, hashes checked. The
# first lock is the stack; when it has changed VENV is made anew. With --repair it installs again, past uv's cache, each
# package of which a file is not as it was installed. Exit code 2 when it cannot be done.
#
# uv and not pip: one way for every machine, since uv also brings Python 3.11 where it is missing, and it sets the
# CPU stack up in seconds from its cache where pip takes minutes. With locks/read.lock alone any platform will do.
set -euo pipefail
CDPATH='' cd -P -- "${BASH_SOURCE[0]%/*}/.."
. locks/uv.sh

repair=
if [[ $1 == --repair ]]; then repair=yes && shift; fi
venv=$1
stack=$2
shift

# A lock is copied to VENV/installed when it is installed, and compared there: a set-up cut short leaves no copy.
installed() { cmp -s "$1" "$venv/installed/${1##*/}"; }

need_space() { # need_space GiB: on the file systems of VENV and of uv's cache
    local free blocks size place
    for place in "$(dirname "$venv")" "$("$uv" cache dir)"; do
        mkdir -p "$place" || die "cannot write $place"
        # Of a file system that does not know its size, as some network mounts, nothing is asked.
        read -r free blocks size < <(stat --file-system --format '%a %b %S' "$place")
        ((free = free * size >> 30, blocks == 0 || free >= $1)) ||
            die "$stack needs $1 GiB of disk and $place has $free GiB free: make room and run again"
    done
}

make_venv() {
    if [[ $stack == locks/read.lock ]]; then
        "$uv" venv --quiet --no-project --clear --python '>=3.11' "$venv" ||
            die "$venv could not be made, see above: for want of Python 3.11 or newer install one"
        return
    fi
    # torch.compile, Triton and DeepSpeed compile against Python.h, which a system's python3.11 may lack.
    local headers='import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
    local python=(--managed-python --python 3.11)
    if python3.11 -c "$headers" 2>/dev/null; then python=(--python "$(command -v python3.11)"); fi
    "$uv" venv --quiet --no-project --clear "${python[@]}" "$venv" ||
        die "$venv could not be made, see above: for want of Python 3.11 install python3.11-dev, it and its headers"
}

complete_venv() {
    # An exported train.py imports this checkout from wherever it lies.
    local site place
    site=$("$venv/bin/python" -Ic 'import sysconfig; print(sysconfig.get_path("purelib"))') || die "$venv does not start"
    [[ $PWD == *$'\n'* ]] || printf '%s\n' "$PWD" >"$site/repro-checkout.pth" || die "cannot write $venv"
    # `uv run` and `uv sync` of a person refuse a .venv that is no environment; they install beside the stacks in it.
    place=$(dirname "$venv")
    [[ $place != */.venv || -e $place/pyvenv.cfg ]] ||
        "$uv" venv --quiet --no-project --allow-existing --python "$venv/bin/python" "$place" || die "cannot write $place"
}

# CUDA's compiler, where VENV has it from nvcc.lock: beside the headers and libraries that torch brings.
toolkit=$venv/lib/python3.11/site-packages/nvidia/cu13

find_nvcc() { # exports CUDA_HOME where nvcc.lock brought the compiler; else the machine's has to be of CUDA 12
    local nvcc version
    if [[ -x $toolkit/bin/nvcc ]]; then
        CUDA_HOME=$(readlink -f "$toolkit")
        export CUDA_HOME
        return
    fi
    nvcc=${CUDA_HOME:+$CUDA_HOME/bin/nvcc}
    nvcc=${nvcc:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
    version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p') || true
    [[ $version == 12.* ]] || die "on a Volta, or with a driver older than 580, the kernels need nvcc of" \
        "CUDA 12, which no package index has, and $nvcc is ${version:-missing}: install it, name its folder in" \
        "CUDA_HOME, or update the driver of a newer GPU"
}

if [[ $stack != locks/read.lock ]]; then
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || libc=
    [[ -n $libc ]] && printf '%s\n' 'glibc 2.28' "$libc" | sort --version-sort --check=quiet ||
        die "the locked stacks need glibc 2.28 or newer (Debian 10, Ubuntu 20.04, RHEL 8) and here is ${libc:-another libc}"
fi

# Kernels are built against the torch of their stack: with kernels.lock, or by images/kernels.sh.
without_kernels() { awk '/^[a-z0-9]/ { on = !/^(flash-attn|mamba-ssm|causal-conv1d)==/ } on' "$1"; }

trap 'say "interrupted: run the same command again to go on"; exit 130' INT
one_at_a_time
find_uv

if ! installed "$stack" || ! "$venv/bin/python" -Ic '' 2>/dev/null; then
    case $stack in locks/read.lock) ;; *cpu.lock) need_space 2 ;; *) need_space 8 ;; esac
    make_venv
    complete_venv
fi
again=()
if [[ -n $repair ]]; then
    for lock in nvcc kernels flash4 modern dev tracking; do
        [[ " $* " == *" locks/$lock.lock "* || ! -e $venv/installed/$lock.lock ]] || set -- "$@" "locks/$lock.lock"
    done
    while read -r package; do again+=("--reinstall-package=$package"); done < <("$venv/bin/python" -IB repro/installation.py)
    ((${#again[@]} == 0)) || again+=(--no-cache)
fi
for lock in "$@"; do
    [[ -z $repair ]] && installed "$lock" && continue
    wanted=$venv/wanted
    options=(--no-deps --require-hashes --build-constraints "$stack" --requirements "$wanted")
    if [[ $lock == *kernels.lock ]]; then
        cp "$lock" "$wanted"
        find_nvcc
        # They build against the torch just installed. Left to themselves they would first look for a binary that
        # somebody else built, of which no lock has a hash.
        options+=(--no-build-isolation)
        # uv's own cache would hand out what another project built against another torch; this one goes with VENV.
        options+=(--cache-dir "$venv/build-cache")
        export FLASH_ATTENTION_FORCE_BUILD=TRUE MAMBA_FORCE_BUILD=TRUE CAUSAL_CONV1D_FORCE_BUILD=TRUE
    else
        without_kernels "$lock" >"$wanted"
        look_around "$lock"
    fi
    say "installing $lock into $venv"
    # DeepSpeed builds its operators when they are first used; none at installation, whatever the user has set.
    DS_BUILD_OPS=0 "$uv" pip install --python "$venv/bin/python" "${options[@]}" ${again[@]+"${again[@]}"} ||
        die "$lock could not be installed, see above: once that is mended run the same command again"
    if [[ $lock == *nvcc*.lock ]]; then # the names by which builders look for libraries: wheels hold no links
        ln -sfn lib "$toolkit/lib64" && ln -sf libcudart.so.13 "$toolkit/lib/libcudart.so" || die "cannot write $venv"
    fi
    mkdir -p "$venv/installed" && cp "$lock" "$venv/installed/" || die "cannot write $venv"
done
[[ -z $repair ]] || say "$venv is as ${*} say"
