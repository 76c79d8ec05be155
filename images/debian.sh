#!/bin/sh
# images/debian.sh PACKAGE ...
#
# Installs Debian packages, and leaves nothing behind that tells when: no lists, caches, logs or bytecode. They come
# from the dated snapshot that the base image names beside its sources, where it can be reached, else from the sources
# themselves; /usr/share/repro/debian.txt says which, and every version that is installed.
set -eu
export DEBIAN_FRONTEND=noninteractive

update() { apt-get -qq -o APT::Update::Error-Mode=any "$@" update; }

origin="the base image's own sources"
options=
sources=/etc/apt/sources.list.d/debian.sources
snapshot=/tmp/snapshot.sources
if grep -qs '^# http' "$sources"; then
    sed -E '/^URIs:/d; s/^# (http)/URIs: \1/' "$sources" >"$snapshot"
    dated="-o Dir::Etc::SourceList=$snapshot -o Dir::Etc::SourceParts=- -o Acquire::Check-Valid-Until=false"
    # shellcheck disable=SC2086  # several words
    if update $dated -o Acquire::http::Timeout=20 -o Acquire::Retries=0; then
        options=$dated
        origin=$(sed -n 's/^# \(http.*\)/\1/p' "$sources" | tr '\n' ' ')
    fi
fi
[ -n "$options" ] || update
# shellcheck disable=SC2086
apt-get -qq $options install --yes --no-install-recommends "$@"

mkdir -p /usr/share/repro
{
    printf 'from %s\n' "$origin"
    dpkg-query --show --showformat '${Package} ${Version} ${Architecture}\n' | sort
} >/usr/share/repro/debian.txt

rm -rf "$snapshot" /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/* \
    /var/lib/dpkg/*-old /var/log/* /etc/*- /root/.cache
find / -xdev -name __pycache__ -prune -exec rm -rf {} +
