#!/usr/bin/env bash
# locks/second.sh PYTHON VENV LOCK [REQUIREMENTS]
#
# Makes VENV, a virtual environment of PYTHON beside the first, and installs LOCK into it, hashes checked where LOCK
# has any. With REQUIREMENTS it makes LOCK first: what they ask for, and of all else the versions that LOCK has at the
# time, as far as they go together. Exit code 2 when it cannot be done.
set -euo pipefail
python=$(readlink -f "$(dirname "$1")")/${1##*/} venv=$(realpath -m "$2") lock=$(realpath -m "$3")
requirements=${4:+$(realpath "$4")}
root=$(readlink -f "${BASH_SOURCE[0]}" && printf .) # what ends in line breaks would lose them
cd "${root%/*/*}"
. locks/uv.sh

trap 'say "interrupted: run the same command again to go on"; exit 130' INT
one_at_a_time
find_uv
look_around "${requirements:-$lock}"

if [[ -n $requirements ]]; then
    "$uv" pip compile --quiet "$requirements" --output-file "$lock" --python "$python" --generate-hashes \
        --no-header >/dev/null || die "does not resolve, see above"
fi
options=(--requirements "$lock")
if grep -q -- '--hash=' "$lock"; then options+=(--no-deps --require-hashes); fi
"$uv" venv --quiet --no-project --clear --python "$python" "$venv" || die "$venv could not be made, see above"
DS_BUILD_OPS=0 "$uv" pip install --quiet --python "$venv/bin/python" "${options[@]}" ||
    die "could not be installed, see above"
# Ranks read their messages with msgspec, whichever stack they are of.
lacks='import sys; from importlib.util import find_spec; sys.exit(find_spec("torch") and not find_spec("msgspec"))'
if ! "$venv/bin/python" -Ic "$lacks"; then
    awk '/^[a-z]/ { on = /^msgspec==/ } on' locks/cpu.lock >"$venv/msgspec.lock"
    "$uv" pip install --quiet --python "$venv/bin/python" --no-deps --require-hashes --requirements "$venv/msgspec.lock" ||
        die "msgspec could not be installed, see above: add it to the lock"
fi
