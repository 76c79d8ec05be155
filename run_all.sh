#!/usr/bin/env bash
# The front door: sets up what is missing under .venv/, on stderr alone, then hands every argument on.
#
#   ./run_all.sh [OPTIONS]            the benchmark: python -m repro OPTIONS
#   ./run_all.sh SUBCOMMAND ...       python -m repro SUBCOMMAND ...
#   ./run_all.sh torchrun ...         torchrun of the stack, on each of several nodes: docs/running.md
#   ./run_all.sh test [OPTIONS]       the tests: python -m pytest OPTIONS, ruff and mypy installed beside
#
# With an NVIDIA GPU the stack is requirements.lock in .venv/gpu, without one locks/cpu.lock in .venv/cpu. A Volta, and a
# driver older than 580, take locks/volta.lock in .venv/volta. Where none of these is set up, what only reads, such as
# audit, takes locks/read.lock in .venv/read, in seconds and on any platform. Before all else, in any order:
#   --with-kernels   also builds flash-attn, mamba-ssm and causal-conv1d: this needs a C++ compiler, on .venv/volta nvcc
#                    of CUDA 12, and up to some hours, once
#   --with-flash4    takes flash-attn-4, a beta, in an environment of its own, .venv/flash4
#   --with-modern    also installs torchao and liger-kernel, for FP8 and cross entropy in --methods modern
#   --with-tracking  also installs wandb and tensorboard, for track; the tests take them in any case
#   --repair         puts back what was changed or removed under .venv/ since, and runs nothing
set -euo pipefail
die() { printf 'run_all.sh: %s\n' "$*" >&2; exit 2; }

# Settings for another Python: with these the stack's own would not start, or not end, or write no bytecode.
unset PYTHONHOME PYTHONPLATLIBDIR PYTHONINSPECT PYTHONSTARTUP PYTHONDONTWRITEBYTECODE

# Up to the stacks, bash and all other tools may be macOS's, whose older readlink follows no link to the end.
root=$(readlink -f "${BASH_SOURCE[0]}" 2>/dev/null && printf .) || # the dot: what ends in line breaks would lose them
    root=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && printf '%s/.' "$PWD")
root=${root%/*}
. "$root/locks/plain_path.sh"

export REPRO_CACHE=${REPRO_CACHE:-$root/.venv/build-cache}
# Many processes import the stack: its bytecode is kept, also where the packages are read-only or the caller writes none.
export PYTHONPYCACHEPREFIX=${PYTHONPYCACHEPREFIX:-$REPRO_CACHE/bytecode}
export PYTHONUTF8=1 # torch's compiler reads its templates, which are UTF-8, in the encoding of the locale
printf -v REPRO_COMMAND %q "$0" # what a person types to resume
[[ $0 == */* && -x $0 ]] || REPRO_COMMAND="bash $REPRO_COMMAND"
export REPRO_COMMAND
[[ -z ${PYTHONPATH-} || $PYTHONPATH == "$root" ]] ||
    printf 'run_all.sh: PYTHONPATH is left out, so that the locked packages are the ones measured; %s\n' \
        "to measure what is on it, run 'python -m repro' with a stack of your own" >&2
export PYTHONPATH=$root

has() { # has STACK LOCK ...: whether the stack is set up with these locks, which locks/install.sh copies there
    local lock
    for lock in "${@:2}"; do cmp -s "$root/$lock" "$root/.venv/$1/installed/${lock##*/}" || return; done
    [[ -x $root/.venv/$1/bin/python ]]
}
set_up() { has "$@" || bash "$root/locks/install.sh" "$root/.venv/$1" "${@:2}" >&2 </dev/null || exit; }
start() { exec "$root/.venv/$1/bin/python" -P -m repro "${@:2}"; } # -P: nothing is imported from the caller's folder

# --- What only reads takes any stack that is there, else locks/read.lock; so do old names, which say what replaced them ---

reads=
case "$* " in
compare*' --a'* | survey*' --out'*) ;; # --against, also shortened, measures; a survey's page is drawn by the stack
audit\ * | claims\ * | table\ * | predict\ * | cost\ * | list\ * | compare\ * | survey\ * | verify\ * | contribute\ *) reads=yes ;;
recommend\ * | rent\ * | breakeven\ * | scaling\ * | recipes\ * | gpus\ * | settings\ * | calibrate\ *) reads=yes ;;
esac
case $(printf %s "$*" | sed -E 's/--(gpu|prices)[^ ]*[ =][^ ]*//g') in
*hf:* | *timm:* | *.py* | *.toml*) reads= ;; # it traces a model of one's own
esac
[[ ${1-} =~ ^(test|torchrun|--repair|--with-.*)$ ]] || [[ ! " $* " =~ ' '(-h|--help|--version)' ' ]] || reads=yes
if [[ -n $reads ]]; then
    for each in cpu:locks/cpu.lock gpu:requirements.lock volta:locks/volta.lock; do
        if has "${each%:*}" "${each#*:}"; then start "${each%:*}" "$@"; fi
    done
    # Help waits for no set-up where the machine's own Python has what it needs.
    [[ ${1-} != -h && ${1-} != --help ]] || ! python3 -c 'import msgspec, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        exec python3 -P -m repro --help
    set_up read locks/read.lock
    start read "$@"
fi
platform=$(uname -sm)
[[ $platform == 'Linux x86_64' ]] || die "what measures, or traces a model of your own, needs the locked stacks, which" \
    "are for Linux x86_64 with glibc, and this is $platform: take such a machine, or run 'python -m repro' with a stack" \
    "of your own (Python 3.11 or newer); what only reads works here, such as $0 audit, claims, table, predict or cost"

# --- The stack for this machine, and what else to install ---

stack=gpu driver=$(cat /proc/driver/nvidia/version /proc/driver/nvidia/gpus/*/information 2>/dev/null) || true
# A device node costs nothing to look for. nvidia-smi, slow to start, is asked only where there is none: under WSL, and
# after a boot in which nothing has made the nodes yet. One that hangs may leave a process that nothing can end: nothing
# here waits for it. A driver that fails is reported by every command that would run on its GPUs: repro/machine/nvml.py.
if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
    code=0
    read -rd '' -t 10 answer < <(exec nvidia-smi 2>/dev/null </dev/null) || code=$?
    ((code <= 128)) || { kill -KILL $! 2>/dev/null || true; [[ ${CUDA_VISIBLE_DEVICES-0} =~ ^(-1)?$ ]]; } ||
        die "nvidia-smi does not answer within 10 s, so the NVIDIA driver hangs: see dmesg, reboot, or set" \
            "CUDA_VISIBLE_DEVICES= to run on the CPU"
    driver+=$answer
    [[ $answer == *'GPU '* ]] || stack=cpu
fi
# CUDA 13, of which torch in requirements.lock is, needs a Turing or newer GPU and a driver of 580 or newer.
volta='V100|TITAN V([^a-zA-Z0-9]|$)' version=$'(NVRM version:[^\n]*|Driver Version:) ([0-9]+)\\.[0-9.]+ '
if [[ $stack == gpu ]] && { [[ $driver =~ $volta ]] || { [[ $driver =~ $version ]] && ((BASH_REMATCH[2] < 580)); }; }; then
    stack=volta
fi
locks=("locks/$stack.lock")
[[ $stack != gpu ]] || locks=(requirements.lock locks/nvcc.lock)
with='^--with-(kernels|flash4|modern|tracking)$' given=
while [[ ${1-} =~ $with ]]; do
    [[ $stack != cpu || $1 == --with-tracking ]] || die "$1 needs an NVIDIA GPU, and none is visible here: leave it out"
    locks+=("locks/${1#--with-}.lock") given+=" $1"
    shift
done
for word; do [[ ! $word =~ $with ]] || die "$word goes before all else: $0 $word ..."; done
if [[ $given == *--with-flash4* ]]; then
    [[ $given != *--with-kernels* ]] ||
        die "--with-kernels and --with-flash4 exclude each other: flash-attn and flash-attn-4 are one package"
    [[ $stack == gpu ]] || die "--with-flash4 needs a Hopper or Blackwell GPU and a driver of 580 or newer: leave it out"
    stack=flash4
    REPRO_COMMAND+=" --with-flash4"
fi

program=(-P -m repro)
case ${1-} in
--repair)
    [[ $# == 1 ]] || die "--repair goes alone, without $2"
    exec bash "$root/locks/install.sh" --repair "$root/.venv/$stack" "${locks[@]}" >&2 </dev/null
    ;;
test) # in as many processes as tests/conftest.py says, a file in one of them; -n 0 for one
    cd "$root"
    locks+=(locks/dev.lock locks/tracking.lock)
    program=(-m pytest -n auto --dist loadfile --no-loadscope-reorder)
    ;;
torchrun) export PYTHONSAFEPATH=1 && program=(-m torch.distributed.run) ;;
esac
[[ ! ${1-} =~ ^(test|torchrun)$ ]] || shift
set_up "$stack" "${locks[@]}"
exec "$root/.venv/$stack/bin/python" "${program[@]}" "$@"
