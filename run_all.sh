#!/usr/bin/env bash
# The front door: sets up what is missing under .venv/, then hands every argument on.
#
#   ./run_all.sh [OPTIONS]            the benchmark: python -m repro OPTIONS
#   ./run_all.sh SUBCOMMAND ...       python -m repro SUBCOMMAND ...
#   ./run_all.sh torchrun ...         torchrun of the stack, on each of several nodes: docs/nodes.md
#   ./run_all.sh test [OPTIONS]       the tests: python -m pytest OPTIONS, ruff and mypy installed beside
#
# With an NVIDIA GPU the stack is requirements.lock in .venv/gpu, without one locks/cpu.lock in .venv/cpu.
# Before all else, in either order:
# --with-kernels also builds flash-attn, mamba-ssm and causal-conv1d into .venv/gpu: this needs nvcc of CUDA 12, a C++
# compiler and up to some hours, once.
# --with-tracking also installs wandb and tensorboard, for --track; the tests take them in any case.
# ./run_all.sh --repair puts back what was changed or removed under .venv/ since, and runs nothing.
# Set-up speaks on stderr only: stdout is the payload.
set -euo pipefail

die() { printf 'run_all.sh: %s\n' "$*" >&2; exit 2; }

platform=$(uname -sm)
[[ $platform == 'Linux x86_64' ]] || die "the locked stacks are for Linux x86_64 and this is $platform:" \
    "take such a machine, or run 'python -m repro' with a stack of your own (Python 3.11 or newer)"

# Settings for another Python: with these the stack's own would not start, or not end, or write no bytecode.
unset PYTHONHOME PYTHONPLATLIBDIR PYTHONINSPECT PYTHONSTARTUP PYTHONDONTWRITEBYTECODE

root=$(readlink -f "${BASH_SOURCE[0]}" && printf .) # what ends in line breaks would lose them
root=${root%/*}
# uv makes no environment under such a name, and torch does not import from there.
! command -v iconv >/dev/null || printf %s "$root" | iconv -f UTF-8 -t UTF-8 >/dev/null 2>&1 ||
    die "${root@Q} is not UTF-8: move the checkout"
# Python splits paths at colons, torch and pytest at blanks, quotes or brackets: they get a plain one that leads here.
awkward=$'[][:space:]:\'"\\\\[]'
if [[ $root =~ $awkward ]]; then
    links=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}/repro
    link=$links/$(printf %s "$root" | sha256sum | cut -c 1-16)
    # In a folder of somebody else the link could be led to a program of theirs.
    [[ $links == /?*/repro && ! $links =~ $awkward ]] && mkdir -p "$links" 2>/dev/null && [[ -O $links && ! -L $links ]] &&
        { [[ -L $link && $link -ef $root ]] || ln -sfnT "$root" "$link" 2>/dev/null; } ||
        die "${root@Q} has what no compiler takes in a path, and no link to it can be made in $links: move the" \
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
    recipes | settings | table | audit | claims | recommend | rent | breakeven | scaling | report | compare | slurm) return 0 ;;
    test) return 1 ;; # its options are pytest's
    esac
    local word
    for word; do [[ $word != -h && $word != --help && $word != --version ]] || return 0; done
    return 1
}

# A device node costs nothing to look for. nvidia-smi, slow to start, is asked only where there is no node: under
# WSL, and after a boot in which nothing has made the nodes yet. It comes with the driver, not with a toolkit.
# A driver that fails, whichever stack is taken then, is told by every command that would run on its GPUs: repro/machine/nvml.py.
# One that hangs may leave an nvidia-smi that nothing can end: nothing here waits for it.
node_is_here() { compgen -G '/dev/nvidia[0-9]*' >/dev/null; }
gpu_is_here() {
    local line='' code=0
    read -r -t 10 line < <(exec nvidia-smi -L 2>/dev/null </dev/null) || code=$?
    if ((code > 128)); then
        kill -KILL $! 2>/dev/null
        [[ ${CUDA_VISIBLE_DEVICES-0} =~ ^(-1)?$ ]] || die "nvidia-smi does not answer within 10 s, so the NVIDIA driver" \
            "hangs: see dmesg, reboot, or set CUDA_VISIBLE_DEVICES= to run on the CPU"
    fi
    [[ $line == 'GPU '* ]]
}

export REPRO_CACHE=${REPRO_CACHE:-$root/.venv/build-cache}
# Many processes import the stack: its bytecode is kept, also where the packages are read-only or the caller writes none.
export PYTHONPYCACHEPREFIX=${PYTHONPYCACHEPREFIX:-$REPRO_CACHE/bytecode}
printf -v REPRO_COMMAND %q "$0" # what a person types to resume
[[ $0 == */* && -x $0 ]] || REPRO_COMMAND="bash $REPRO_COMMAND"
export REPRO_COMMAND
if [[ -n ${PYTHONPATH-} && $PYTHONPATH != "$root" ]]; then
    printf 'run_all.sh: PYTHONPATH is left out, so that the locked packages are the ones measured; %s\n' \
        "to measure what is on it, run 'python -m repro' with a stack of your own" >&2
fi
export PYTHONPATH=$root

declare -A first=([cpu]=locks/cpu.lock [gpu]=requirements.lock)
stack=
if node_is_here; then
    stack=gpu
elif needs_no_gpu "$@"; then
    for each in cpu gpu; do if has $each ${first[$each]}; then stack=$each && break; fi; done
fi
# Help needs no stack, so it waits for none where the machine's own Python will do.
if [[ ${1-} == -h || ${1-} == --help ]] && { [[ -z $stack ]] || ! has $stack ${first[$stack]}; } &&
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    exec python3 -P -m repro --help
fi
if [[ -z $stack ]]; then if gpu_is_here; then stack=gpu; else stack=cpu; fi; fi
locks=("${first[$stack]}")
while :; do
    case ${1-} in
    --with-kernels)
        [[ $stack == gpu ]] || die "--with-kernels needs an NVIDIA GPU, and none is visible here: leave it out"
        locks+=(locks/kernels.lock)
        ;;
    --with-tracking) locks+=(locks/tracking.lock) ;;
    *) break ;;
    esac
    shift
done
for word; do
    [[ $word != --with-kernels && $word != --with-tracking ]] || die "$word goes before all else: $0 $word ..."
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
