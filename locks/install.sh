#!/usr/bin/env bash
# locks/install.sh [--repair] VENV LOCK ...
#
# Makes VENV, a virtual environment of Python 3.11, and installs the locks into it, in their order, hashes checked:
# those of what is fetched, and then those of every file. The first lock is the stack; when it has changed VENV is made
# anew. With --repair it installs again what is not as these locks, and others that VENV has, say. Exit code 2 when it
# cannot be done.
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

find_damaged() { # find_damaged LOCK: sets again to the packages in VENV that are not as LOCK has them, and says how
    local found
    found=$("$venv/bin/python" -IB repro/installation.py --against "$1") || die "$venv cannot be checked, see above"
    # shellcheck disable=SC2206  # a word each; the bash of macOS has no mapfile
    again=($found)
}

need_space() { # need_space GiB: on the file systems of VENV and of uv's cache
    local blocks cache free needed=$1 place size
    cache=$("$uv" cache dir)
    for place in "$(dirname "$venv")" "$cache"; do mkdir -p "$place" || die "cannot write $place"; done
    # On one file system it needs both, but for what the cache has already: where that is torch it is most of it.
    if [[ $(stat -c %d "$(dirname "$venv")") == $(stat -c %d "$cache") ]] &&
        ! compgen -G "$cache/archive-v*/*/torch" >/dev/null; then
        needed=$((2 * $1))
    fi
    for place in "$(dirname "$venv")" "$cache"; do
        # Of a file system that does not know its size, as some network mounts, nothing is asked.
        read -r free blocks size < <(stat --file-system --format '%a %b %S' "$place")
        ((free = free * size >> 30, blocks == 0 || free >= needed)) ||
            die "$stack needs $needed GiB of disk and $place has $free GiB free: make room and run again"
    done
}

make_venv() {
    local place
    place=$(dirname "$venv")
    make_stack
    # `uv run` and `uv sync` of a person refuse a .venv that is no environment; they install beside the stacks in it.
    if [[ $place == */.venv && ! -e $place/pyvenv.cfg ]]; then
        "$uv" venv --quiet --no-project --allow-existing --python "$venv/bin/python" "$place" || die "cannot write $place"
    fi
}

make_stack() {
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

# CUDA's compiler, where VENV has it from nvcc.lock: beside the headers and libraries that torch brings.
toolkit() { printf '%s\n' "$venv"/lib/python3.11/site-packages/nvidia/cu13; }

link_toolkit() { # link_toolkit LOCK: with a compiler's lock, the names by which builders look for libraries: wheels hold no links
    [[ $1 == *nvcc*.lock ]] || return 0
    ln -sfn lib "$(toolkit)/lib64" && ln -sf libcudart.so.13 "$(toolkit)/lib/libcudart.so" || die "cannot write $venv"
}

find_nvcc() { # exports CUDA_HOME where nvcc.lock brought the compiler; else the machine's has to be of CUDA 12
    local nvcc version
    if [[ -x $(toolkit)/bin/nvcc ]]; then
        CUDA_HOME=$(readlink -f "$(toolkit)")
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

libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || libc=
if [[ $stack != locks/read.lock ]]; then
    [[ -n $libc ]] && printf '%s\n' 'glibc 2.28' "$libc" | sort --version-sort --check=quiet ||
        die "the locked stacks need glibc 2.28 or newer (Debian 10, Ubuntu 20.04, RHEL 8) and here is ${libc:-another libc}"
fi

# Kernels are built against the torch of their stack: with kernels.lock, or by images/kernels.sh.
without_kernels() { awk '/^[a-z0-9]/ { on = !/^(flash-attn|mamba-ssm|causal-conv1d)==/ } on' "$1"; }

trap 'say "interrupted: run the same command again to go on"; exit 130' INT
one_at_a_time
find_uv

if [[ -n $repair ]]; then
    for lock in locks/nvcc.lock locks/kernels.lock locks/flash4.lock locks/modern.lock locks/dev.lock locks/tracking.lock; do
        [[ " $* " == *" $lock "* || ! -e $venv/installed/${lock##*/} ]] || set -- "$@" "$lock"
    done
fi
if ! installed "$stack" || ! "$venv/bin/python" -Ic '' 2>/dev/null; then
    case $stack in locks/read.lock) ;; *cpu.lock) need_space 2 ;; *) need_space 8 ;; esac
    make_venv
fi
for lock in "$@"; do
    [[ -z $repair ]] && installed "$lock" && continue
    wanted=$venv/wanted
    case $lock in *kernels.lock) cp "$lock" "$wanted" ;; *) without_kernels "$lock" >"$wanted" ;; esac
    again=()
    if installed "$lock"; then
        link_toolkit "$lock"
        find_damaged "$wanted"
        ((${#again[@]})) || continue
    fi
    [[ $lock == *kernels.lock ]] || look_around "$lock"
    say "installing $lock into $venv"
    options=(--no-deps --require-hashes --build-constraints "$stack" --requirements "$wanted")
    if [[ $lock == *kernels.lock ]]; then
        find_nvcc
        # They build against the torch just installed. Left to themselves they would first look for a binary that
        # somebody else built, of which no lock has a hash.
        options+=(--no-build-isolation)
        # uv's own cache would hand out what another project built against another torch; this one goes with VENV.
        options+=(--cache-dir "$venv/build-cache")
        export FLASH_ATTENTION_FORCE_BUILD=TRUE MAMBA_FORCE_BUILD=TRUE CAUSAL_CONV1D_FORCE_BUILD=TRUE
    fi
    # DeepSpeed builds its operators when they are first used; none at installation, whatever the user has set.
    install() { DS_BUILD_OPS=0 "$uv" pip install --python "$venv/bin/python" "${options[@]}" ${again[@]+"${again[@]/#/--reinstall-package=}"}; }
    install || die "$lock could not be installed, see above: once that is mended run the same command again"
    find_damaged "$wanted"
    if ((${#again[@]})) && [[ $lock != *kernels.lock ]]; then
        say "uv's cache has other files than were installed into it, of ${again[*]}: fetching that anew"
        options+=(--no-cache)
        install || die "$lock could not be installed, see above: once that is mended run the same command again"
        find_damaged "$wanted"
    fi
    ((${#again[@]} == 0)) || die "uv installed $lock, and ${again[*]} is not there as it says: run the same command again"
    link_toolkit "$lock"
    mkdir -p "$venv/installed" && cp "$lock" "$venv/installed/" || die "cannot write $venv"
done
[[ -z $repair ]] || say "$venv is as ${*} say"
