#!/usr/bin/env bash
# g++ for any x86-64 processor with AVX2, where a set-up asks for the one that it happens to run on; in C++20 where
# $CXX20 is not empty.
set -euo pipefail
options=()
for option in "$@"; do
    case $option in
    -march=native) option=-march=x86-64-v3 ;;
    -std=c++17) [[ -z ${CXX20-} ]] || option=-std=c++20 ;;
    -D__AVX512__) option=-D__AVX256__ ;;
    esac
    options+=("$option")
done
exec g++ "${options[@]}"
