# One image a row of images/generations.csv, each from a hash-pinned lock: what differs between the generations is what is
# compiled in, and TF32. All of it runs as a non-root user, without a network, and writes only to /results.
#
#   docker build --tag repro .                           the last stage: every GPU from Turing on
#   docker build --tag repro:TARGET --target TARGET .    volta turing ampere ada hopper blackwell, cpu, paper, latest
#
# The table names the kernels that are compiled in, and for which compute capabilities; --build-arg KERNELS="deepspeed
# mamba-ssm" and --build-arg ARCHITECTURES="80 86" take their place.
#
# Where packages come from, if it is not where everybody's do: --secret id=pip.conf,src=... and --secret id=ca.crt,src=...
ARG BASE_IMAGE=debian:bookworm-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587
# bookworm-slim of 2026-10-05. Below, CUDA 12.8: volta and paper alone take its compiler, which no package index has.
ARG CUDA_IMAGE=nvidia/cuda:12.8.1-devel-ubuntu22.04@sha256:a99a1860ba8e2916e5c3e73b72ec4c4301653a84586e05bfc9a2aa2d58027e97
ARG VERSION=0.5.0
ARG SOURCE=unknown
ARG REVISION=unknown
# Of the locks, for the labels: locks/make.sh keeps them in step.
ARG REQUIREMENTS_SHA256=3ce166541a9445ada6ad6800878b7c0b1efa19414efe8a4738692511b8eadfbd
ARG VOLTA_SHA256=0ab0c1e4f242452fcc75f624ee3ecd9dff5c1831ac14aa630b6f39bd0c2909ba
ARG CPU_SHA256=3b1d5c21a135fad78ee154dcd00cd6bad32ba84bfdaa37265975b3199513691f
ARG PAPER_SHA256=40629c7016f46dbbb4a573ddfe3ba063c472d628b5a575a971c244af8c9646b7
ARG LATEST_SHA256=e82a76041b48bd4deb942c9a43dcc7dc66866e805a8f7b2c787595458710b188

FROM ${CUDA_IMAGE} AS cuda

# Python, and what torch.compile and Triton call at run time: the C++ compiler, and openssl for the hash of its headers.
FROM ${BASE_IMAGE} AS base
COPY images/debian.sh /opt/repro/images/
RUN /opt/repro/images/debian.sh g++ openssl python3.11-dev tini && \
    echo 'repro:x:1000:1000::/nonexistent:/usr/sbin/nologin' >>/etc/passwd && \
    echo 'repro:x:1000:' >>/etc/group && \
    install --directory --owner 1000 --group 1000 /results

# --- The stacks: virtual environments in /opt/venv, every file's hash checked ---

FROM base AS installer
RUN /opt/repro/images/debian.sh ca-certificates python3-pip python3-venv
WORKDIR /opt/repro
COPY locks locks
COPY repro/installation.py repro/
COPY requirements.lock pyproject.toml ./
# The hash seed: DeepSpeed writes sets into its metadata when it is built.
ENV UV_NO_CACHE=1 PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 PIP_CONFIG_FILE=/run/secrets/pip.conf

FROM installer AS stack-gpu
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    locks/install.sh /opt/venv requirements.lock locks/dev.lock

FROM installer AS stack-volta
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    locks/install.sh /opt/venv locks/volta.lock locks/dev.lock

FROM installer AS stack-cpu
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    locks/install.sh /opt/venv locks/cpu.lock locks/dev.lock

FROM installer AS stack-paper
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    locks/install.sh /opt/venv locks/paper.lock locks/dev.lock

FROM installer AS stack-latest
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    locks/install.sh /opt/venv locks/latest.lock locks/dev.lock

# --- What is compiled in: packages in /opt/kernels, which Python finds before those of the stack ---

# The compiler of CUDA 13 comes from Python's package index, and lies where torch's headers and libraries do.
FROM stack-gpu AS compiler
COPY images images
ENV CUDA_HOME=/opt/venv/lib/python3.11/site-packages/nvidia/cu13
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    locks/install.sh /opt/venv requirements.lock locks/nvcc.lock

FROM compiler AS kernels-turing
ARG ARCHITECTURES KERNELS MAX_JOBS
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    images/kernels.sh turing

FROM compiler AS kernels-ampere
ARG ARCHITECTURES KERNELS MAX_JOBS
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    images/kernels.sh ampere

FROM compiler AS kernels-ada
ARG ARCHITECTURES KERNELS MAX_JOBS
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    images/kernels.sh ada

FROM compiler AS kernels-hopper
ARG ARCHITECTURES KERNELS MAX_JOBS
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    images/kernels.sh hopper

FROM compiler AS kernels-blackwell
ARG ARCHITECTURES KERNELS MAX_JOBS
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    images/kernels.sh blackwell

FROM compiler AS kernels-every
ARG ARCHITECTURES KERNELS MAX_JOBS
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    images/kernels.sh every

FROM stack-volta AS compiler-volta
COPY images images
COPY --from=cuda /usr/local/cuda-12.8 /usr/local/cuda
ENV CUDA_HOME=/usr/local/cuda

FROM compiler-volta AS kernels-volta
ARG ARCHITECTURES KERNELS MAX_JOBS
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    images/kernels.sh volta

FROM stack-paper AS compiler-paper
COPY images images
COPY --from=cuda /usr/local/cuda-12.8 /usr/local/cuda
# This DeepSpeed does not know that torch's CUDA 12.1 and 12.8 get along.
ENV CUDA_HOME=/usr/local/cuda DS_SKIP_CUDA_CHECK=1

FROM compiler-paper AS kernels-paper
ARG ARCHITECTURES KERNELS MAX_JOBS
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    images/kernels.sh paper

# The headers of this torch want C++20.
FROM stack-latest AS compiler-latest
COPY images images
ENV CUDA_HOME=/opt/venv/lib/python3.11/site-packages/nvidia/cu13 CXX20=1
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    locks/install.sh /opt/venv locks/latest.lock locks/nvcc-latest.lock

FROM compiler-latest AS kernels-latest
ARG ARCHITECTURES KERNELS MAX_JOBS
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt \
    images/kernels.sh latest

# --- The images ---

FROM base AS program
ARG VERSION
ARG SOURCE
ARG REVISION
LABEL org.opencontainers.image.title=repro \
    org.opencontainers.image.licenses=MIT \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.source=${SOURCE} \
    org.opencontainers.image.revision=${REVISION}
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/repro:/opt/kernels \
    PYTHONNOUSERSITE=1 \
    PYTHONPYCACHEPREFIX=/results/.cache/bytecode \
    HOME=/nonexistent \
    USER=repro \
    REPRO_CACHE=/results/.cache \
    REPRO_COMMIT=${REVISION} \
    REPRO_COMMAND="docker run --volume repro:/results repro"
COPY . /opt/repro
# From here the default results folder, results/local, is in the volume.
WORKDIR /
VOLUME /results
USER 1000:1000
# -s: also where it is not the first process, as under Apptainer, and would warn.
ENTRYPOINT ["tini", "-s", "--", "/opt/repro/images/entrypoint.sh"]

# NVIDIA's runtime gives a container that sets these the GPUs and the driver, also without Docker's --gpus.
FROM program AS on-gpu
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    REPRO_COMMAND="docker run --gpus all --volume repro:/results repro"

FROM on-gpu AS gpu
COPY --from=stack-gpu /opt/venv /opt/venv
ARG REQUIREMENTS_SHA256
LABEL repro.lock=requirements.lock repro.lock.sha256=${REQUIREMENTS_SHA256}

FROM on-gpu AS volta
COPY --from=stack-volta /opt/venv /opt/venv
COPY --from=kernels-volta /opt/kernels /opt/kernels
ARG VOLTA_SHA256
LABEL repro.lock=locks/volta.lock repro.lock.sha256=${VOLTA_SHA256}
ENV REPRO_IMAGE=volta REPRO_TF32=off

FROM gpu AS turing
COPY --from=kernels-turing /opt/kernels /opt/kernels
ENV REPRO_IMAGE=turing REPRO_TF32=off

FROM gpu AS ampere
COPY --from=kernels-ampere /opt/kernels /opt/kernels
ENV REPRO_IMAGE=ampere REPRO_TF32=on

FROM gpu AS ada
COPY --from=kernels-ada /opt/kernels /opt/kernels
ENV REPRO_IMAGE=ada REPRO_TF32=on

FROM gpu AS hopper
COPY --from=kernels-hopper /opt/kernels /opt/kernels
ENV REPRO_IMAGE=hopper REPRO_TF32=on

FROM gpu AS blackwell
COPY --from=kernels-blackwell /opt/kernels /opt/kernels
ENV REPRO_IMAGE=blackwell REPRO_TF32=on

FROM program AS cpu
COPY --from=stack-cpu /opt/venv /opt/venv
ARG CPU_SHA256
LABEL repro.lock=locks/cpu.lock repro.lock.sha256=${CPU_SHA256}
ENV REPRO_IMAGE=cpu REPRO_TF32=off

# Where there is a GPU this DeepSpeed asks nvcc its version when it is imported, and fails without one.
FROM on-gpu AS paper
COPY --from=cuda /usr/local/cuda-12.8/bin/nvcc /usr/local/cuda/bin/nvcc
COPY --from=stack-paper /opt/venv /opt/venv
COPY --from=kernels-paper /opt/kernels /opt/kernels
ARG PAPER_SHA256
LABEL repro.lock=locks/paper.lock repro.lock.sha256=${PAPER_SHA256}
ENV REPRO_IMAGE=paper REPRO_TF32=auto

FROM on-gpu AS latest
COPY --from=stack-latest /opt/venv /opt/venv
COPY --from=kernels-latest /opt/kernels /opt/kernels
ARG LATEST_SHA256
LABEL repro.lock=locks/latest.lock repro.lock.sha256=${LATEST_SHA256}
ENV REPRO_IMAGE=latest REPRO_TF32=auto

FROM gpu AS every
COPY --from=kernels-every /opt/kernels /opt/kernels
ENV REPRO_IMAGE=every REPRO_TF32=auto
