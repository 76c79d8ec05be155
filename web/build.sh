#!/usr/bin/env bash
# Make the page: web/build.sh [SITE] writes a folder that any static server serves, such as python3 -m http.server -d SITE.
# Pyodide's and the wheels' hashes are checked; the page loads nothing from elsewhere.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
site=$(realpath -m "${1:-site}")
for tool in npm python3; do
    command -v "$tool" >/dev/null || { echo "web/build.sh: $tool is missing: install it" >&2; exit 2; }
done
if [[ -e $site && ! -e $site/wheels.js ]]; then
    echo "web/build.sh: $site is there, and no page: name another folder" >&2
    exit 2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cp "$here"/package*.json "$scratch"
npm ci --silent --ignore-scripts --omit=optional --prefix "$scratch"
made=$scratch/site
mkdir -p "$made/pyodide" "$made/wheels"
cp "$here"/{index.html,page.css,page.js,worker.js} "$here/../repro/report/style.css" "$made"
for file in pyodide.mjs pyodide.asm.mjs pyodide.asm.wasm python_stdlib.zip pyodide-lock.json; do
    cp "$scratch/node_modules/pyodide/$file" "$made/pyodide"
done
python3 -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$made/wheels" "$here/.."
python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --platform pyemscripten_2026_0_wasm32 --python-version 3.14 --abi cp314 --dest "$made/wheels" -r "$here/wheels.txt"
(cd "$made" && printf 'export const wheels = [%s];\n' "$(printf '"./%s", ' wheels/*.whl)" >wheels.js)

rm -rf "$site"
mv "$made" "$site"
du -sh --apparent-size "$site"
