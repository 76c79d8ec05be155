#!/usr/bin/env bash
# images/build.sh [TARGET ...] [-- OPTION ...]
#
# Builds images, all of them where no TARGET is named, as repro:TARGET; the one for every GPU from Turing on is also
# repro:latest. OPTIONs go to the builder: Docker's, or podman where there is no docker or ENGINE=podman says so. All
# times in an image are its commit's, so that whoever builds a commit from the same packages gets the same bytes.
#
# PUBLISH=REGISTRY/NAME pushes them there instead, as NAME:TARGET and NAME:VERSION-TARGET (the newest stack as the latter
# alone), each with its provenance and a bill of materials: by docker buildx and its container driver.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

targets=()
while (($#)); do
    if [[ $1 == -- ]]; then shift; break; fi
    targets+=("$1")
    shift
done
mapfile -t all < <(tail -n +2 images/generations.csv | cut -d, -f1)
((${#targets[@]})) || targets=("${all[@]}")
for target in "${targets[@]}"; do
    if [[ " ${all[*]} " != *" $target "* ]]; then
        echo "build.sh: $target is no image: they are ${all[*]}; options of the builder follow --" >&2
        exit 2
    fi
done

engine=${ENGINE:-$(command -v docker >/dev/null && echo docker || echo podman)}
revision=$(git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null || echo unknown)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH
if [[ -n ${PUBLISH-} && $engine != docker ]]; then
    echo "build.sh: PUBLISH takes docker, and this is $engine: podman writes no provenance" >&2
    exit 2
fi
version=$(sed -n 's/^ARG VERSION=//p' Dockerfile)
# Only an address that others can read, and without anybody's credentials.
source=$({ git remote get-url origin 2>/dev/null || true; } | sed -nE 's#^(https|ssh)://([^@/]*@)?#\1://#p')

for target in "${targets[@]}"; do
    options=(--target "$target" --build-arg "REVISION=$revision")
    [[ -z $source ]] || options+=(--build-arg "SOURCE=$source")
    tags=("$target")
    [[ $target != every ]] || tags+=(latest)
    builder=("$engine" build)
    if [[ -n ${PUBLISH-} ]]; then
        builder=(docker buildx build) # `docker build` would leave out the builder that writes provenance
        [[ $target != latest ]] || tags=() # there the name is that of `every`
        tags+=("$version-$target")
        options+=(--provenance=mode=max --sbom=true --output type=image,push=true,rewrite-timestamp=true)
    elif [[ $engine == docker ]]; then
        options+=(--provenance=false --output type=docker,rewrite-timestamp=true)
    else
        options+=(--timestamp "$SOURCE_DATE_EPOCH")
    fi
    for tag in "${tags[@]}"; do options+=(--tag "${PUBLISH:-repro}:$tag"); done
    printf 'build.sh: %s build %s\n' "$engine" "$target" >&2
    "${builder[@]}" "${options[@]}" "$@" .
done
