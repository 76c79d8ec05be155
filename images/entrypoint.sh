#!/bin/sh
# What `docker run repro WORDS` runs: the tests where the first word is `test`, else `repro` with all of them.
# Whatever is written goes to /results: temporary files, compiled kernels and bytecode into /results/.cache.
set -eu
export TMPDIR=/results/.cache/tmp
if ! mkdir -p "$TMPDIR" 2>/dev/null; then
    echo "repro: user $(id -u) cannot write to /results: mount a named volume (--volume repro:/results), or a folder" \
        "of that user's, or run as the folder's owner (--user UID:GID)" >&2
    exit 2
fi
if [ "${1-}" = test ]; then
    shift
    cd /opt/repro
    # The tests are the program's; what this image tells the program is none of their business.
    unset REPRO_IMAGE REPRO_TF32 REPRO_COMMAND REPRO_COMMIT
    exec python -m pytest -p no:cacheprovider "$@"
fi
# -P: what lies in the current folder is not imported.
exec python -P -m repro "$@"
