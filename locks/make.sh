#!/usr/bin/env bash
# Makes the locks from the extras of pyproject.toml. This is the one command that does:
#
#   locks/make.sh [OPTIONS]     OPTIONS go to `uv pip compile`; without --upgrade what is locked stays as it is
#
#   requirements.lock       bench, stack, gpu    the stack on a machine with an NVIDIA GPU
#   locks/cpu.lock          bench, stack, cpu    the stack without one
#   locks/kernels.lock      kernels              second step after requirements.lock: sources built with its torch
#   locks/paper.lock        bench, paper         the authors' own stack, kernels included
#   locks/latest.lock       bench, latest        the newest of everything, kernels included
#   locks/nvcc.lock         nvcc                 CUDA's compiler for latest.lock
#   locks/dev.lock          dev                  tools of the tests, beside either stack
#   locks/tracking.lock     tracking             trackers, 100 MB that few runs need: beside either stack, on demand
#   locks/installer.lock    installer            uv itself
#
# They are for Python 3.11 on Linux x86-64, with a hash for every file and no address of any index. Beside each lies
# its bill of materials (CycloneDX), locks/sbom/NAME.cdx.json, and the Dockerfile's labels carry the stacks' hashes.
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
    "$uv" pip compile --quiet pyproject.toml --output-file "$@" \
        --python-version 3.11 --python-platform x86_64-manylinux_2_28 --generate-hashes \
        --custom-compile-command locks/make.sh >/dev/null
}

lock requirements.lock --extra bench --extra stack --extra gpu "$@"
lock locks/cpu.lock --extra bench --extra stack --extra cpu "$@"
# All that they need besides torch, triton and transformers (einops, ninja, packaging, setuptools, wheel) is in
# requirements.lock.
lock locks/kernels.lock --extra kernels --no-deps "$@"
lock locks/paper.lock --extra bench --extra paper "$@"
lock locks/latest.lock --extra bench --extra latest "$@"
lock locks/nvcc.lock --extra nvcc --no-deps "$@"
lock locks/dev.lock --extra dev --constraint locks/cpu.lock "$@"
lock locks/tracking.lock --extra tracking --constraint locks/cpu.lock "$@"
lock locks/installer.lock --extra installer "$@"

tools=.venv/tools
if ! cmp -s locks/dev.lock "$tools/dev.lock"; then
    "$uv" venv --quiet --no-project --clear --python 3.11 "$tools"
    "$uv" pip install --quiet --python "$tools/bin/python" --no-deps --require-hashes --requirements locks/dev.lock
    cp locks/dev.lock "$tools/dev.lock"
fi
mkdir -p locks/sbom
for made in requirements.lock locks/*.lock; do
    name=${made##*/}
    "$tools/bin/python" locks/sbom.py "$made" >"locks/sbom/${name%.lock}.cdx.json"
done

for stack in requirements cpu paper latest; do
    made=locks/$stack.lock
    [[ -f $made ]] || made=$stack.lock
    hash=$(sha256sum "$made" | cut -d' ' -f1)
    sed -i "s/^ARG ${stack^^}_SHA256=.*/ARG ${stack^^}_SHA256=$hash/" Dockerfile
done
