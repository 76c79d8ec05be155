#!/usr/bin/env bash
# tests/nix/check.sh: parses, evaluates and checks the flake, without a network and without nixpkgs.
#
# Needs root on Debian, and installs nix-bin where there is no nix. A stub, nixpkgs/, stands in for nixpkgs: its
# programs are those of this PATH, so the flake's checks and its `nix run` really run. It does not show that the pinned
# nixpkgs has these packages in these versions, nor that a shell made of them works.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

if ! command -v nix >/dev/null; then
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends nix-bin >/dev/null
fi

scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch" && rm -rf "$scratch"' EXIT
export NIX_STORE_DIR=$scratch/store NIX_STATE_DIR=$scratch/state NIX_LOG_DIR=$scratch/log NIX_CONF_DIR=$scratch/conf
export XDG_CACHE_HOME=$scratch/cache HOST_PATH=$PATH
flake() { # flake COMMAND WORD ...: the subcommand `flake check` is one COMMAND
    # shellcheck disable=SC2086  # several words
    nix --extra-experimental-features 'nix-command flakes' --offline --option sandbox false --option build-users-group '' \
        $1 --impure --no-write-lock-file --override-input nixpkgs "path:$PWD/tests/nix/nixpkgs" "${@:2}"
}

nix-instantiate --parse flake.nix >/dev/null
flake 'flake check' --print-build-logs
for shell in default cpu volta turing ampere ada hopper blackwell every; do
    flake eval ".#devShells.x86_64-linux.$shell.drvPath" >/dev/null 2>&1
done
flake run . -- --help 2>/dev/null | grep '^usage: .*\[COMMAND\]'
