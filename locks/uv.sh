# Sourced from the top of the checkout by install.sh, make.sh and second.sh: finding uv, and having it look where a
# person's pip and uv look. All else that they, or Python, are set to do does not count here.

for name in $(compgen -e PYTHON); do
    # An image is built with these, so that two builds are the same.
    case $name in PYTHONDONTWRITEBYTECODE | PYTHONHASHSEED) ;; *) unset "$name" ;; esac
done

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$@"; exit 2; }

one_at_a_time() { # waits for any other set-up of this checkout; the lock goes with this process
    local code=0 why
    mkdir -p .venv && exec 9>.venv/lock || die "cannot write $PWD/.venv"
    why=$(flock --nonblock 9 2>&1) || code=$?
    case $code in
    0) rm -rf .venv/tmp ;; # left by one that was killed
    1) say "another set-up is running: waiting for it"; flock 9 ;;
    *) say "file locks do not work in $PWD/.venv (${why:-exit code $code}): start no second set-up before this one ends" ;;
    esac
    # Also where /tmp is full, read-only or missing.
    export TMPDIR=$PWD/.venv/tmp/$$
    mkdir -p "$TMPDIR" || die "cannot write $PWD/.venv"
    trap 'rm -rf "$TMPDIR"' EXIT
}

python_with_pip() { # prints the first python3 on PATH that has one: an activated environment may have none
    local python
    while read -r python; do
        "$python" -m pip --version >/dev/null 2>&1 && printf '%s\n' "$python" && return
    done < <(type -ap python3)
    return 1
}

find_uv() { # sets uv: the pinned one, got with any python3 that has pip, else one on PATH
    read_configuration
    local home=$PWD/.venv/uv python
    uv=$home/bin/uv
    cmp -s locks/installer.lock "$home/installed.lock" && works 2>/dev/null && return
    if python=$(python_with_pip) && rm -rf "$home" &&
        PIP_REQUIRE_VIRTUALENV=0 PIP_ROOT_USER_ACTION=ignore "$python" -m pip -qq --disable-pip-version-check install \
            --target "$home" --no-deps --require-hashes --only-binary :all: --requirement locks/installer.lock >&2 && works; then
        cp locks/installer.lock "$home/installed.lock"
        return
    fi
    uv=$(command -v uv) ||
        die "needs uv, which no python3 with pip could install here: see above, or install python3-pip or uv"
    say "taking $uv, as pip could not install the one of locks/installer.lock"
}

works() { "$uv" --version >/dev/null; }

read_configuration() { # uv reads none of pip's files and variables; of these only what says where packages are counts
    # What one index lacks another may have, as with pip; the hashes say which file is meant.
    local python assignments='' name
    python=$(python_with_pip) && assignments=$("$python" locks/pip_configuration.py) || true
    for name in $(compgen -e PIP_) $(compgen -e UV_); do
        case $name in
        UV_DEFAULT_INDEX | UV_INDEX | UV_INDEX_URL | UV_EXTRA_INDEX_URL | UV_INDEX_*_USERNAME | UV_INDEX_*_PASSWORD) ;;
        UV_FIND_LINKS | UV_NO_INDEX | UV_OFFLINE | UV_INSECURE_HOST | UV_KEYRING_PROVIDER) ;;
        UV_NATIVE_TLS | UV_SYSTEM_CERTS | UV_HTTP_* | UV_REQUEST_TIMEOUT) ;;
        UV_CONFIG_FILE | UV_CACHE_DIR | UV_NO_CACHE | UV_PYTHON_DOWNLOADS | UV_PYTHON_INSTALL_* | UV_PYTHON_CACHE_DIR) ;;
        *) unset "$name" ;;
        esac
    done
    eval "$assignments"
    export PIP_CONFIG_FILE=/dev/null UV_INDEX_STRATEGY=unsafe-best-match
    # A file that is a link into uv's cache changes with that of every other environment, and goes with the cache.
    export UV_LINK_MODE=copy
}

look_around() { # look_around FILE: whether packages of FILE can be had at all; dies with the cause where they cannot
    local pins pin errors
    pins=$(grep -o '^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9._+!-]*' "$1") || return 0
    pin=$(grep -m 1 '^torch==[0-9.]*+cpu' <<<"$pins" || head -n 1 <<<"$pins")
    errors=$("$uv" pip compile --quiet --no-deps --python-version 3.11 --python-platform x86_64-manylinux_2_28 - \
        <<<"$pin" 2>&1 >/dev/null) && return
    if [[ $errors == *'No solution found'* && $errors != *'could not be queried'* && $errors != *UnknownIssuer* ]]; then
        # A CPU build of torch is on no package index, only where PyTorch has it.
        [[ $pin != *+cpu ]] || export UV_FIND_LINKS=${UV_FIND_LINKS:+$UV_FIND_LINKS,}https://download.pytorch.org/whl/cpu/torch/
        return
    fi
    [[ $errors != *UnknownIssuer* ]] ||
        die "$(grep -o 'https://[^/ )`]*' <<<"$errors" | head -n 1) has a certificate of an authority that uv does not" \
            "know${SSL_CERT_FILE:+ from $SSL_CERT_FILE}: name its file in SSL_CERT_FILE, or as pip's cert"
    printf '%s\n' "$errors" >&2
    die "no packages can be had, see above: once that is mended run the same command again"
}
