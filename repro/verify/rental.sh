
# --- The same in each script: repro/verify/rental.sh. The runs stand at the end. ---

set -uo pipefail
self=${BASH_SOURCE[0]##*/}
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 2
SECONDS=0 sudo=()
((EUID == 0)) || sudo=(sudo -n)
at_the_end=${AT_THE_END-${at_the_end:-${sudo[*]} shutdown -h now}}

say() { printf '%s: %s\n' "$self" "$*" >&2; }
left() { printf %s $((60 * $1 - SECONDS)); } # left MINUTES: seconds to go until so many minutes after the start
apt() { "${sudo[@]}" timeout "$(left "$minutes")" apt-get -qq -o DPkg::Lock::Timeout=300 "$@"; }

pack() { # writes results.tar.gz anew, without the names of this host and of users
    local word words=() clean=(-e 's#/(home|Users)/[[:alnum:]._@+-]+#/\1/user#g')
    read -ra words <<<"$(uname -n) $(uname -n | cut -d. -f1) $(id -un) ${SUDO_USER-}"
    for word in "${words[@]}"; do
        # A name that is also a word of this file, such as root, user, admin, ubuntu or H100, tells nothing.
        ((${#word} < 4)) || grep -qiwF -e "$word" "$self" ||
            clean+=(-e "s/${word//./[.]}/name/g")
    done
    rm -rf packed && mkdir -p results packed && cp -r results log.txt packed/ && rm -rf packed/results/.cache &&
        find packed -type f -exec sed -i -E "${clean[@]}" {} + &&
        tar -czf results.tar.gz.part --owner=0 --group=0 --numeric-owner -C packed . && mv results.tar.gz.part results.tar.gz
    rm -rf packed
}

finish() { # however this ends
    local code=$?
    trap '' EXIT INT TERM
    say "ended with exit code $code; at the end: $at_the_end"
    sleep 0.3 # until log.txt has the last lines
    pack
    eval "$at_the_end"
    exit "$code"
}

run() { # run MINUTES WORD ...: a run, which ends so many minutes after the start at the latest
    local code=0 seconds
    seconds=$(left "$1")
    if ((seconds <= 0)); then
        say "no time is left for: ${*:2}"
        return
    fi
    say "${*:2}"
    timeout --kill-after=60 "$seconds" "${repro[@]}" "${@:2}" </dev/null &
    running=$! # a shell that waits for it hears of signals at once
    wait "$running" || code=$?
    running=
    pack
    case $code in
    0 | 1) ;; # also a cell that differs is a result
    2) exit 2 ;; # this machine cannot measure, and its last line says why: the others would end alike
    *) say "exit code $code, 124 where the time was over: what it had finished is kept" ;;
    esac
}

trap finish EXIT
running=
trap '[[ -z $running ]] || { kill "$running" && wait "$running"; }; exit 130' INT TERM
trap '' HUP # it goes on where the connection breaks
exec > >(trap '' INT TERM && exec tee -a --output-error=warn log.txt) 2>&1

if [[ -n ${IMAGE-} ]]; then
    "${sudo[@]}" timeout "$(left "$minutes")" docker pull --quiet "$IMAGE" || exit 2
    mkdir -p results
    repro=("${sudo[@]}" docker run --rm --gpus all --cap-drop ALL --security-opt no-new-privileges --shm-size 1g)
    repro+=(--hostname repro --user "$(id -u):$(id -g)" --volume "$PWD/results:/results" "$IMAGE")
else
    { g++ --version && openssl version && python3 -m pip --version; } >/dev/null 2>&1 ||
        { apt update && apt install --yes --no-install-recommends g++ openssl python3-pip; } || exit 2
    mkdir -p repro && tar -xzf repro.tar.gz -C repro || exit 2
    export REPRO_COMMIT=$commit
    repro=(repro/run_all.sh)
fi

