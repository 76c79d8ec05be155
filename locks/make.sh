#!/usr/bin/env bash
# Makes the locks from the dependency groups of pyproject.toml. This is the one command that does:
#
#   locks/make.sh [OPTIONS]     OPTIONS go to `uv pip compile`; without --upgrade what is locked stays as it is
#
#   requirements.lock       bench, stack, gpu    the stack on a machine with an NVIDIA GPU, Turing or newer
#   locks/volta.lock        bench, stack, volta  the stack on one with a Volta
#   locks/cpu.lock          bench, stack, cpu    the stack without one
#   locks/kernels.lock      kernels              second step after requirements.lock or volta.lock: built with its torch
#   locks/flash4.lock       flash4               flash-attn-4, beside requirements.lock in place of kernels.lock
#   locks/modern.lock       modern               parts of modern training, beside a stack of a GPU, on demand
#   locks/paper.lock        bench, paper         the authors' own stack, kernels included
#   locks/latest.lock       bench, latest        the newest of everything, kernels included
#   locks/nvcc.lock         nvcc                 CUDA's compiler, beside requirements.lock
#   locks/nvcc-latest.lock  nvcc-latest          CUDA's compiler, beside latest.lock
#   locks/dev.lock          dev                  tools of the tests, beside either stack
#   locks/read.lock         read                 for what only reads, on any platform
#   locks/tracking.lock     tracking             trackers, 100 MB that few runs need: beside either stack, on demand
#   locks/installer.lock    installer            uv itself
#
# They are for Python 3.11 on Linux x86-64, with a hash for every file and no address of any index. The Dockerfile's
# labels carry the stacks' hashes; a bill of materials is made for each image that images/build.sh publishes.
#
#   locks/make.sh --check   makes them all in a scratch folder, and fails with the difference where one is out of step
set -euo pipefail
root=$(readlink -f "${BASH_SOURCE[0]}" && printf .) # what ends in line breaks would lose them
cd "${root%/*/*}"
. locks/uv.sh

if [[ ${1-} == -h || ${1-} == --help ]]; then
    sed -n '2,/^set /s/^# \{0,1\}//p' locks/make.sh
    exit
fi
if [[ ${1-} == --check ]]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    mkdir -p .venv
    cp -R pyproject.toml requirements.lock Dockerfile locks "$scratch"
    ln -s "$PWD/.venv" "$scratch/.venv"
    bash "$scratch/locks/make.sh"
    for made in requirements.lock Dockerfile locks; do
        diff --recursive --unified --exclude __pycache__ "$made" "$scratch/$made" ||
            { say "$made is out of step with pyproject.toml, see above: run locks/make.sh"; exit 1; }
    done
    exit
fi

one_at_a_time
find_uv
look_around <(sed -n 's/.*"\(torch==[^"]*+cpu\)".*/\1/p' pyproject.toml)

lock() { # lock FILE OPTION ...
    say "making $1"
    "$uv" pip compile --quiet --output-file "$@" \
        --python-version 3.11 --python-platform x86_64-manylinux_2_28 --generate-hashes \
        --custom-compile-command locks/make.sh >/dev/null
    sed -i 's/ (pyproject.toml:[a-z0-9-]*)$/ (pyproject.toml)/' "$1" # the group is no part of what is locked
}

lock requirements.lock --group bench --group stack --group gpu "$@"
lock locks/volta.lock --group bench --group stack --group volta "$@"
lock locks/cpu.lock --group bench --group stack --group cpu "$@"
# All that they need besides torch, triton and transformers (einops, ninja, packaging, setuptools, wheel) is in
# requirements.lock.
lock locks/kernels.lock --group kernels --no-deps "$@"
lock locks/flash4.lock --group flash4 --constraint requirements.lock "$@"
# They need torch and triton, which the stack has.
lock locks/modern.lock --group modern --no-deps "$@"
lock locks/paper.lock --group bench --group paper "$@"
lock locks/latest.lock --group bench --group latest "$@"
lock locks/nvcc.lock --group nvcc --no-deps "$@"
lock locks/nvcc-latest.lock --group nvcc-latest --no-deps "$@"
lock locks/dev.lock --group dev --constraint locks/cpu.lock "$@"
# Any platform takes it, so it has the files for all, of which an index of one's own may lack some.
UV_INDEX='' UV_EXTRA_INDEX_URL='' UV_FIND_LINKS='' lock locks/read.lock --group read --constraint locks/cpu.lock "$@"
# Each stack has a setuptools of its own, as torch asks for it.
lock locks/tracking.lock --group tracking --constraint locks/cpu.lock --no-emit-package setuptools "$@"
lock locks/installer.lock --group installer "$@"

for stack in requirements volta cpu paper latest; do
    made=locks/$stack.lock
    [[ -f $made ]] || made=$stack.lock
    hash=$(sha256sum "$made" | cut -d' ' -f1)
    sed -i "s/^ARG ${stack^^}_SHA256=.*/ARG ${stack^^}_SHA256=$hash/" Dockerfile
done
