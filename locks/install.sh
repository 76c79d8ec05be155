#!/usr/bin/env bash
# locks/install.sh VENV LOCK ...
#
# Makes VENV, a virtual environment of Python 3.11, and installs the locks into it, in their order, hashes checked.
# The first lock is the stack; when it has changed VENV is made anew. Exit code 2 when it cannot be done.
#
# uv and not pip: one way for every machine, since uv also brings Python 3.11 where it is missing, and it sets the
# CPU stack up in seconds from its cache where pip takes minutes.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
cd "$root"
. locks/uv.sh

venv=$1
stack=$2
shift

# A lock is copied to VENV/installed when it is installed, and compared there: a set-up cut short leaves no copy.
installed() { cmp -s "$1" "$venv/installed/${1##*/}"; }

here() { # here LOCK: whether VENV has what LOCK pins; says what it lacks
    "$venv/bin/python" -IB - "$1" <<'EOF'
import re, sys
from importlib.metadata import distributions
found = {re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower(): each.version for each in distributions()}
for name, pinned in re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", open(sys.argv[1]).read()):
    if (version := found.get(re.sub(r"[-_.]+", "-", name).lower())) != pinned:
        sys.exit(f"{name} {pinned} was installed and {version or 'none'} is there")
EOF
}

need_space() { # need_space GiB: on the file systems of VENV and of uv's cache, which links into VENV where it can
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
    # torch.compile, Triton and DeepSpeed compile against Python.h, which a system's python3.11 may lack.
    local headers='import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
    local python=(--managed-python --python 3.11)
    if python3.11 -c "$headers" 2>/dev/null; then python=(--python "$(command -v python3.11)"); fi
    "$uv" venv --quiet --no-project --clear "${python[@]}" "$venv" ||
        die "Python 3.11 could not be had, see above: install python3.11 with its headers (python3.11-dev)"
}

check_nvcc() {
    local nvcc version
    nvcc=${CUDA_HOME:+$CUDA_HOME/bin/nvcc}
    nvcc=${nvcc:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
    version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p') || true
    [[ $version == 12.* ]] || die "the kernels need nvcc of CUDA 12, as torch in requirements.lock does, and" \
        "$nvcc is ${version:-missing}: install it, or name its folder in CUDA_HOME"
}

libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || libc=
[[ -n $libc ]] && printf '%s\n' 'glibc 2.28' "$libc" | sort --version-sort --check=quiet ||
    die "the locked stacks need glibc 2.28 or newer (Debian 10, Ubuntu 20.04, RHEL 8) and here is ${libc:-another libc}"

# Kernels are built against the torch of their stack: with kernels.lock, or by images/kernels.sh.
without_kernels() { awk '/^[a-z0-9]/ { on = !/^(flash-attn|mamba-ssm|causal-conv1d)==/ } on' "$1"; }

trap 'say "interrupted: run the same command again to go on"; exit 130' INT
one_at_a_time
find_uv

if ! installed "$stack" || [[ ! -x $venv/bin/python ]]; then
    case $stack in *cpu.lock) need_space 2 ;; *) need_space 9 ;; esac
    make_venv
fi
for lock in "$@"; do
    installed "$lock" && continue
    say "installing $lock into $venv"
    wanted=$lock
    options=(--no-deps --require-hashes --build-constraints "$stack")
    case $lock in
    *kernels.lock)
        check_nvcc
        # They build against the torch just installed. Left to themselves they would first look for a binary that
        # somebody else built, of which no lock has a hash.
        options+=(--requirements "$lock" --no-build-isolation)
        # uv's own cache would hand out what another project built against another torch; this one goes with VENV.
        options+=(--cache-dir "$venv/build-cache")
        export FLASH_ATTENTION_FORCE_BUILD=TRUE MAMBA_FORCE_BUILD=TRUE CAUSAL_CONV1D_FORCE_BUILD=TRUE
        ;;
    *)
        find_torch "$lock"
        wanted=$venv/wanted
        without_kernels "$lock" >"$wanted"
        options+=(--requirements "$wanted")
        ;;
    esac
    # DeepSpeed builds its operators when they are first used; none at installation, whatever the user has set.
    DS_BUILD_OPS=0 "$uv" pip install --python "$venv/bin/python" "${options[@]}" && here "$wanted" &&
        mkdir -p "$venv/installed" && cp "$lock" "$venv/installed/" ||
        die "$lock could not be installed, see above: once that is mended run the same command again"
done
