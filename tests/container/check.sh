#!/usr/bin/env bash
# tests/container/check.sh [--twice]: builds the image for machines without a GPU, and uses it as people do.
#
# With --twice it is built twice, to the same bytes.
#
# Needs root on Debian, and installs what it needs of it. There need be no Docker engine: podman builds the image and
# answers the docker client. Where the pinned base cannot be pulled, mmdebstrap makes one like it. Everything lies in a
# scratch folder, and goes with it. Where pip is told to look for packages, the build looks too.
set -euo pipefail
[[ $* == '' || $* == --twice ]] || { echo "check.sh: takes --twice or nothing: its first lines tell what it does" >&2; exit 2; }
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

say() { printf 'container: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

missing=()
for tool in podman buildah runc netavark iptables mmdebstrap; do
    [[ -x /usr/bin/$tool || -x /usr/sbin/$tool || -x /usr/lib/podman/$tool ]] || missing+=("$tool")
done
if ((${#missing[@]})); then
    say "installing ${missing[*]}"
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "${missing[@]}" >/dev/null
fi

scratch=$(mktemp -d)
service=
clean_up() {
    [[ -z $service ]] || kill "$service" 2>/dev/null || true
    podman ps --all --quiet 2>/dev/null | xargs --no-run-if-empty podman rm --force --volumes >/dev/null 2>&1 || true
    podman unmount --all >/dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap clean_up EXIT

cat >"$scratch/containers.conf" <<END
[containers]
default_ulimits = []
netns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
END
cat >"$scratch/storage.conf" <<END
[storage]
driver = "overlay"
graphroot = "$scratch/graph"
runroot = "$scratch/run"
END
export CONTAINERS_CONF=$scratch/containers.conf CONTAINERS_STORAGE_CONF=$scratch/storage.conf

# --- Build ---

base=$(sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile)
if ! timeout 60 podman pull --quiet "docker.io/library/${base/:*@/@}" >/dev/null 2>&1; then
    say "the pinned base cannot be pulled: making one like it"
    mmdebstrap --quiet --variant=minbase bookworm "$scratch/base.tar"
    podman import --quiet "$scratch/base.tar" stand-in >/dev/null
    base=localhost/stand-in
fi

# pip's configuration, and the folders of packages and the certificates that it names. An environment variable, which
# sorts last here, goes before a file.
options=()
cert=/etc/ssl/certs/ca-certificates.crt
declare -A pip=()
while IFS='=' read -r key value; do
    value=${value//\'/}
    pip[${key##*.}]=${value//\\n/ }
done < <(python3 -m pip config list | sort --reverse)
echo '[global]' >"$scratch/pip.conf"
for key in index-url extra-index-url find-links trusted-host no-index; do
    [[ -z ${pip[$key]-} ]] || echo "$key = ${pip[$key]}" >>"$scratch/pip.conf"
    for place in ${pip[$key]-}; do
        place=${place#file://}
        [[ ! -d $place ]] || options+=(--volume "$place:$place:ro")
        [[ ! -d ${place%/simple} ]] || options+=(--volume "${place%/simple}:${place%/simple}:ro")
    done
done
echo "cert = $cert" >>"$scratch/pip.conf"

build() { # from nothing but the base; prints the digest
    ENGINE=podman images/build.sh cpu -- --layers=false --build-arg "BASE_IMAGE=$base" "${options[@]}" \
        --secret "id=pip.conf,src=$scratch/pip.conf" --secret "id=ca.crt,src=${pip[cert]:-$cert}" \
        >"$scratch/build.log" 2>&1 || { tail -n 30 "$scratch/build.log" >&2; die "the image cannot be built"; }
    podman image inspect --format '{{.Digest}}' repro:cpu
}

say "building"
first=$(build)
podman tag repro:cpu repro:latest
say "built in $SECONDS s: $first, $(podman image inspect --format '{{.Size}}' repro) bytes"
if [[ ${1-} == --twice ]]; then
    second=$(build)
    [[ $first == "$second" ]] || die "two clean builds differ: $first and $second"
    say "two clean builds are the same, after $SECONDS s"
fi

# --- Run ---

if command -v docker >/dev/null; then
    podman system service --time=0 "unix://$scratch/docker.sock" &
    service=$!
    export DOCKER_HOST=unix://$scratch/docker.sock
    until [[ -S $scratch/docker.sock ]]; do sleep 0.1; done
else
    docker() { podman "$@"; }
fi

run() { # run EXIT_CODE WORD ...: what it prints is in $scratch/out and $scratch/err
    local code=0
    say "$ ${*:2}"
    "${@:2}" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
    [[ $code == "$1" ]] && return
    cat "$scratch/out" "$scratch/err" >&2
    die "exit code $code instead of $1: ${*:2}"
}
has() { grep --quiet --fixed-strings -- "$2" "$scratch/$1" || { cat "$scratch/$1" >&2; die "$1 has no '$2'"; }; }
lines() { (($(wc -l <"$scratch/$1") == $2)) || { cat "$scratch/$1" >&2; die "$1 has not $2 lines"; }; }

run 2 docker run repro --gpus all
lines err 1
lines out 0
has err 'docker run --gpus all repro'
has err '--device nvidia.com/gpu=all'
has err 'add --processes 1'

# Without a network, without any place to write to but the volume, to its end and with every exit code.
# shellcheck disable=SC2207  # the options of the page's docker lines, in words
safe=($(sed -n 's/^safe="\(.*\)".*/\1/p' docs/containers.md))
[[ ${safe[*]} == *--cap-drop* ]] || die "docs/containers.md names no options"
strict=(--network none --read-only "${safe[@]}")
tiny=(--models pythia-160m --methods naive)
run 0 docker run "${strict[@]}" --volume results:/results repro --gpus all --processes 1,2 "${tiny[@]}"
has err 'so --gpus all is left out'
has err 'image cpu; torch'
has out 'Pythia-160M'
run 3 docker run "${strict[@]}" --volume results:/results repro "${tiny[@]}" --require-comparison
has err 'done by an earlier run'
run 2 docker run repro frobnicate
run 0 docker run "${strict[@]}" repro list gpus --format csv
has out 'H100 SXM'
run 0 docker run "${strict[@]}" repro doctor
has out 'no GPU is visible; image cpu'

tests=(tests/machine/test_doctor.py tests/setup/test_images.py tests/measure/test_fork_server.py)
tests+=(tests/measure/test_trial.py::test_free_lunch_is_compiled_and_says_into_what)
run 0 docker run "${strict[@]}" repro test -q -n auto --dist loadfile "${tests[@]}"
has out ' passed'
run 5 docker run repro test -q -k no_such_test

# As Apptainer runs it: as another user, with their home, beside the host's processes, and with nothing to write to but
# what is bound.
mkdir "$scratch/bound" "$scratch/home"
chown 4321:4321 "$scratch/bound" "$scratch/home"
apptainer=("${strict[@]}" --pid host --user 4321:4321 --env HOME=/home/somebody --env USER=somebody)
apptainer+=(--volume "$scratch/home:/home/somebody:ro" --volume "$scratch/bound:/results")
run 0 docker run "${apptainer[@]}" repro --processes 1 --models pythia-160m --methods free-lunch --steps 1
has out 'Pythia-160M'
! grep --quiet --ignore-case tini "$scratch/err" || die "tini warns that it is not the first process"
[[ $(stat -c %u "$scratch/bound/local/trials.jsonl") == 4321 ]] || die "the records are not that user's"
grep --quiet '"status": "ok"' "$scratch/bound/local/trials.jsonl" || die "free lunch did not run"

# Nobody's home, and nobody's root.
run 0 docker run --entrypoint sh repro -c 'id -u; test ! -e "$HOME"; ! touch /opt/repro/x /x 2>/dev/null; printenv HOME'
has out 1000
run 0 docker run --entrypoint sh repro -c 'find / -xdev -name "*.pyc" 2>/dev/null; ls -A /var/log /var/lib/apt/lists'
! grep --quiet 'pyc$' "$scratch/out" || die "the image holds bytecode"
run 0 docker run --entrypoint cat repro /usr/share/repro/debian.txt
has out 'python3.11 3.11'
mkdir "$scratch/locked"
chmod 700 "$scratch/locked"
run 2 docker run --volume "$scratch/locked:/results" repro
lines err 1
has err 'cannot write to /results'

[[ $(podman image inspect --format '{{index .Labels "repro.lock.sha256"}}' repro) == \
    "$(sha256sum <locks/cpu.lock | cut -d' ' -f1)" ]] || die "the label is not the lock's hash"

# Without words it is the CPU benchmark; SIGTERM ends it and keeps what it has, and the same volume goes on from there.
say '$ docker run repro, and docker stop'
docker run --detach --name whole --volume whole:/results repro >/dev/null
# Through a file, as elsewhere: a grep that ends a pipe early makes docker's broken pipe the pipe's status.
until docker logs whole >"$scratch/out" 2>&1 && grep --quiet '^\[ 1/' "$scratch/out"; do
    [[ $(docker inspect --format '{{.State.Running}}' whole) == true ]] || { docker logs whole; die "it ended"; }
    sleep 1
done
grep --quiet 'trials; about .* on the CPU' "$scratch/out" || { cat "$scratch/out" >&2; die "it is not the CPU benchmark"; }
docker stop --time 60 whole >/dev/null
[[ $(docker inspect --format '{{.State.ExitCode}}' whole) == 130 ]] || { docker logs whole; die "SIGTERM is no 130"; }
run 0 docker run --volume whole:/results --entrypoint cat repro /results/local/trials.jsonl
has out '"status": "ok"'

# A rented machine has its system alone, and here no GPU: the script sets up, says so, packs, and ends as it was told. Its
# Python is Debian's, as what fetches one may not be reached.
./run_all.sh verify --budget 2 --script "$scratch/rented" --at-the-end 'touch ended' >/dev/null 2>&1
cp "$scratch/pip.conf" "$scratch/rented"
cp "${pip[cert]:-$cert}" "$scratch/rented/ca.crt"
rented=(--network host "${options[@]}" --volume "$scratch/rented:/rented" --env PIP_CONFIG_FILE=/rented/pip.conf)
rented+=(--env PIP_CERT=/rented/ca.crt --env SSL_CERT_FILE=/rented/ca.crt)
run 2 docker run "${rented[@]}" "$base" sh -c 'apt-get -qq update &&
    apt-get -qq install --yes --no-install-recommends python3.11-dev >/dev/null && exec bash /rented/1xA6000.sh'
has out '--gpus 1: no GPU is visible here'
[[ -e $scratch/rented/ended ]] || die "its last command did not run"
tar -xzOf "$scratch/rented/results.tar.gz" ./log.txt >"$scratch/out"
has out 'no GPU is visible here'

printf 'container: all held, in %s s; %s\n' "$SECONDS" "$first"
