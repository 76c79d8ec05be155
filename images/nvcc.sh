#!/usr/bin/env bash
# nvcc for the compute capabilities in $ARCHITECTURES alone ("80 86"), whichever the sources' own set-up asks for, and
# in C++20 where $CXX20 is not empty, as the newest torch's headers want it. torch's builder finds it by PYTORCH_NVCC.
set -euo pipefail
options=()
standard=-std=c++17
[[ -z ${CXX20-} ]] || standard=-std=c++20
while (($#)); do
    case $1 in
    -gencode | --generate-code) shift ;; # and its value
    -gencode=* | --generate-code=*) ;;
    -std=c++17) options+=("$standard") ;;
    *) options+=("$1") ;;
    esac
    shift
done
for architecture in $ARCHITECTURES; do
    options+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
done
exec "$CUDA_HOME/bin/nvcc" "${options[@]}"
