#!/usr/bin/env bash
# The front door: sets up what is missing under .venv/, then hands every argument on.
#
#   ./run_all.sh [OPTIONS]            the benchmark: python -m repro OPTIONS
#   ./run_all.sh SUBCOMMAND ...       python -m repro SUBCOMMAND ...
#   ./run_all.sh torchrun ...         torchrun of the stack, on each of several nodes: docs/running.md
#   ./run_all.sh test [OPTIONS]       the tests: python -m pytest OPTIONS, ruff and mypy installed beside
#
# With an NVIDIA GPU the stack is requirements.lock in .venv/gpu, without one locks/cpu.lock in .venv/cpu. A Volta, and a
# driver older than 580, take locks/volta.lock in .venv/volta. Where none of these is set up, what only reads, such as
# audit, takes locks/read.lock in .venv/read, in seconds and on any platform.
# Before all else, in any order:
# --with-kernels also builds flash-attn, mamba-ssm and causal-conv1d: this needs a C++ compiler, on .venv/volta nvcc of
# CUDA 12, and up to some hours, once.
# --with-flash4 takes flash-attn-4, a beta, in an environment of its own, .venv/flash4.
# --with-modern also installs torchao and liger-kernel, for FP8 and cross entropy in --methods modern.
# --with-tracking also installs wandb and tensorboard, for track; the tests take them in any case.
# ./run_all.sh --repair puts back what was changed or removed under .venv/ since, and runs nothing.
# Set-up speaks on stderr only: stdout is the payload.
set -euo pipefail

die() { printf 'run_all.sh: %s\n' "$*" >&2; exit 2; }

# Settings for another Python: with these the stack's own would not start, or not end, or write no bytecode.
unset PYTHONHOME PYTHONPLATLIBDIR PYTHONINSPECT PYTHONSTARTUP PYTHONDONTWRITEBYTECODE

# What ends in line breaks would lose them. The readlink of an older macOS follows no link to the end.
root=$(readlink -f "${BASH_SOURCE[0]}" 2>/dev/null && printf .) ||
    root=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && printf '%s/.' "$PWD")
root=${root%/*}
# uv makes no environment under such a name, and torch does not import from there.
! command -v iconv >/dev/null || printf %s "$root" | iconv -f UTF-8 -t UTF-8 >/dev/null 2>&1 ||
    die "$(printf %q "$root") is not UTF-8: move the checkout"
# Python splits paths at colons, torch and pytest at blanks, quotes or brackets: they get a plain one that leads here.
awkward=$'[][:space:]:\'"\\\\[]'
if [[ $root =~ $awkward ]]; then
    links=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}/repro
    link=$links/$(printf %s "$root" | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c 1-16)
    # In a folder of somebody else the link could be led to a program of theirs.
    [[ $links == /?*/repro && ! $links =~ $awkward ]] && mkdir -p "$links" 2>/dev/null && [[ -O $links && ! -L $links ]] &&
        { [[ -L $link && $link -ef $root ]] || { [[ -L $link || ! -e $link ]] && ln -sfn "$root" "$link" 2>/dev/null; }; } ||
        die "$(printf %q "$root") has what no compiler takes in a path, and no link to it can be made in $links: move the" \
            "checkout, or name a plain folder in XDG_CACHE_HOME"
    root=$link
fi

# A lock is copied into the virtual environment once it is installed there, see locks/install.sh.
has() { # has STACK LOCK ...: whether the stack is set up with these locks
    local venv=$root/.venv/$1 lock
    for lock in "${@:2}"; do
        cmp -s "$root/$lock" "$venv/installed/${lock##*/}" || return
    done
    [[ -x $venv/bin/python ]]
}

needs_no_gpu() { # a command that measures nothing, and help
    case ${1-} in
    table | audit | claims | cost | report | slurm) return 0 ;;
    compare) if ! measures_stacks "$@"; then return 0; fi ;;
    list) [[ ${2-} == gpus ]] || return 0 ;;
    esac
    is_help "$@"
}

measures_stacks() { [[ " $*" == *" --a"* ]]; } # compare --against, also shortened

is_help() {
    [[ ${1-} != test ]] || return # its options are pytest's
    local word
    for word; do [[ $word != -h && $word != --help && $word != --version ]] || return 0; done
    return 1
}

only_reads() { # a command that neither measures nor traces a model of one's own, and help
    case ${1-} in torchrun | --repair | --with-*) return 1 ;; esac
    ! is_help "$@" || return 0
    case ${1-} in
    audit | claims | table | predict | cost | list) ;;
    compare) ! measures_stacks "$@" || return 1 ;;
    # They name the command that took their place.
    recommend | rent | breakeven | scaling | recipes | gpus | settings | calibrate) ;;
    survey) [[ " $*" != *" --out"* ]] || return 1 ;; # its page is drawn by the stack
    *) return 1 ;;
    esac
    local word before=
    for word; do
        case "$before $word" in
        *--gpu*.toml | *--prices*.toml) ;;
        *hf:* | *timm:* | *.py* | *.toml*) return 1 ;;
        esac
        before=$word
    done
}

# A device node costs nothing to look for. nvidia-smi, slow to start, is asked only where there is no node: under
# WSL, and after a boot in which nothing has made the nodes yet. It comes with the driver, not with a toolkit.
# A driver that fails, whichever stack is taken then, is told by every command that would run on its GPUs: repro/machine/nvml.py.
# One that hangs may leave an nvidia-smi that nothing can end: nothing here waits for it.
node_is_here() { compgen -G '/dev/nvidia[0-9]*' >/dev/null; }
named=
gpu_is_here() {
    local code=0
    read -r -t 10 named < <(exec nvidia-smi -L 2>/dev/null </dev/null) || code=$?
    if ((code > 128)); then
        kill -KILL $! 2>/dev/null
        [[ ${CUDA_VISIBLE_DEVICES-0} =~ ^(-1)?$ ]] || die "nvidia-smi does not answer within 10 s, so the NVIDIA driver" \
            "hangs: see dmesg, reboot, or set CUDA_VISIBLE_DEVICES= to run on the CPU"
    fi
    [[ $named == 'GPU '* ]]
}

# CUDA 13, of which torch in requirements.lock is, needs a Turing or newer GPU and a driver of 580 or newer.
gpu_stack() { # prints the stack for what the driver tells under /proc, which WSL has not, or nvidia-smi
    local told old='V100|TITAN V([^a-zA-Z0-9]|$)' driver=$'(NVRM version:[^\n]*|Driver Version:) ([0-9]+)\\.[0-9.]+ '
    told=$(cat /proc/driver/nvidia/version /proc/driver/nvidia/gpus/*/information 2>/dev/null) ||
        told+=$named$(timeout 10 nvidia-smi 2>/dev/null </dev/null) || true
    if [[ $told =~ $old ]] || { [[ $told =~ $driver ]] && ((BASH_REMATCH[2] < 580)); }; then
        echo volta
    else
        echo gpu
    fi
}

export REPRO_CACHE=${REPRO_CACHE:-$root/.venv/build-cache}
# Many processes import the stack: its bytecode is kept, also where the packages are read-only or the caller writes none.
export PYTHONPYCACHEPREFIX=${PYTHONPYCACHEPREFIX:-$REPRO_CACHE/bytecode}
# torch's compiler reads its templates, which are UTF-8, in the encoding of the locale.
export PYTHONUTF8=1
printf -v REPRO_COMMAND %q "$0" # what a person types to resume
[[ $0 == */* && -x $0 ]] || REPRO_COMMAND="bash $REPRO_COMMAND"
export REPRO_COMMAND
if [[ -n ${PYTHONPATH-} && $PYTHONPATH != "$root" ]]; then
    printf 'run_all.sh: PYTHONPATH is left out, so that the locked packages are the ones measured; %s\n' \
        "to measure what is on it, run 'python -m repro' with a stack of your own" >&2
fi
export PYTHONPATH=$root

# Help needs no stack, so it waits for none where the machine's own Python will do.
if [[ ${1-} == -h || ${1-} == --help ]] &&
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    exec python3 -P -m repro --help
fi
# Up to here, and in locks/install.sh for locks/read.lock, bash is that of macOS, 3.2, and so are all other tools.
if only_reads "$@" && ! has cpu locks/cpu.lock && ! has gpu requirements.lock && ! has volta locks/volta.lock; then
    has read locks/read.lock || bash "$root/locks/install.sh" "$root/.venv/read" locks/read.lock >&2 </dev/null || exit
    exec "$root/.venv/read/bin/python" -P -m repro "$@"
fi
platform=$(uname -sm)
[[ $platform == 'Linux x86_64' ]] || die "what measures, or traces a model of your own, needs the locked stacks, which" \
    "are for Linux x86_64 with glibc, and this is $platform: take such a machine, or run 'python -m repro' with a stack" \
    "of your own (Python 3.11 or newer); what only reads works here, such as $0 audit, claims, table, predict or cost"

declare -A first=([cpu]=locks/cpu.lock [gpu]='requirements.lock locks/nvcc.lock' [volta]=locks/volta.lock)
stack=
if node_is_here; then
    stack=$(gpu_stack)
elif needs_no_gpu "$@"; then
    for each in cpu gpu volta; do if has $each ${first[$each]}; then stack=$each && break; fi; done
fi
if [[ -z $stack ]]; then if gpu_is_here; then stack=$(gpu_stack); else stack=cpu; fi; fi
if only_reads "$@" && ! has $stack ${first[$stack]}; then # it takes any stack that is there
    for each in cpu gpu volta; do if has $each ${first[$each]%% *}; then stack=$each && break; fi; done
    exec "$root/.venv/$stack/bin/python" -P -m repro "$@"
fi
# shellcheck disable=SC2206  # several words
locks=(${first[$stack]})
more='' with='^--with-(kernels|flash4|modern|tracking)$'
while [[ ${1-} =~ $with ]]; do
    [[ $stack != cpu || $1 == --with-tracking ]] || die "$1 needs an NVIDIA GPU, and none is visible here: leave it out"
    if [[ $1 == --with-kernels || $1 == --with-flash4 ]]; then
        [[ -z $more || $more == "$1" ]] || die "$more and $1 exclude each other: flash-attn and flash-attn-4 are one package"
        more=$1
    fi
    locks+=("locks/${1#--with-}.lock")
    shift
done
if [[ $more == --with-flash4 ]]; then
    [[ $stack == gpu ]] || die "--with-flash4 needs a Hopper or Blackwell GPU and a driver of 580 or newer: leave it out"
    stack=flash4
    REPRO_COMMAND+=" --with-flash4"
fi
for word; do
    [[ ! $word =~ $with ]] || die "$word goes before all else: $0 $word ..."
done
if [[ ${1-} == test ]]; then locks+=(locks/dev.lock locks/tracking.lock); fi

venv=$root/.venv/$stack
if [[ ${1-} == --repair ]]; then
    [[ $# == 1 ]] || die "--repair goes alone, without $2"
    exec bash "$root/locks/install.sh" --repair "$venv" "${locks[@]}" >&2 </dev/null
fi
if ! has "$stack" "${locks[@]}"; then
    bash "$root/locks/install.sh" "$venv" "${locks[@]}" >&2 </dev/null || exit
fi

if [[ ${1-} == test ]]; then
    shift
    cd "$root"
    "$venv/bin/python" -IB repro/installation.py --whole || exit 2
    # In as many processes as tests/conftest.py says, a file in one of them; -n 0 for one.
    exec "$venv/bin/python" -m pytest -n auto --dist loadfile --no-loadscope-reorder "$@"
fi
# What lies in the caller's folder, such as a models/ of their own, is not imported.
if [[ ${1-} == torchrun ]]; then
    shift
    PYTHONSAFEPATH=1 exec "$venv/bin/python" -m torch.distributed.run "$@"
fi
exec "$venv/bin/python" -P -m repro "$@"
