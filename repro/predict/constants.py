"""The constants of the time model, each with its source.

A rate is a share, from 0 to 1, of what the hardware offers at most, unless a unit stands there. tools/fit.py fits the
queue's `papers_compiled` and at most six of the rates in `CANDIDATES`, which start from the values here, and writes
them to fits.json.
"""

from __future__ import annotations

from dataclasses import dataclass

ADAM_BYTES = 100.0  # memory traffic a weight: torch's unfused Adam makes several passes
FUSED_ADAM_BYTES = 30.0  # DeepSpeed's Adam, on a GPU, or on its host with offloading
MASTER_BYTES = 2.0 + 4.0 + 4.0 + 2.0  # bf16 gradients become fp32 ones, and fp32 weights are rounded to bf16
FP8_PEAK = 2.0  # over half precision, on every GPU that has it (data sheets)

# Launches per kernel of a trace, besides two copies a tensor: medians of a profiler's counts for eager and for compiled
# code (results/h200). Libraries add copies and fills that a trace does not contain.
EAGER_LAUNCHES, COMPILED_LAUNCHES = 1.32, 1.57
# Adam uses torch's multi-tensor kernels, which process 320 blocks of 65,536 weights a launch (MultiTensorApply.cuh).
# Adam and clipping pass over all weights about ten times: an update of Pythia-2.8B makes 1,359 launches, ViT's 163
# (results/h200).
ADAM_CHUNK, ADAM_PASSES = 320 * 65_536, 10


@dataclass(frozen=True)
class Rates:
    """The rates of the time model."""

    # Products. Large ones reach 0.75 in fp16 and 0.81 in TF32 of an H100 (results/h100/text/probes.json).
    matmul_half: float = 0.7  # of peak: half precision, except on the GPUs of the next two lines
    matmul_half_hopper: float = (
        0.7  # ... on Hopper, which its power limits: free lunch of Pythia on an H100 (results/h100)
    )
    matmul_half_geforce: float = 0.95  # ... on GeForce, whose data sheets state half the rate of their tensor cores
    matmul_fp32: float = 0.75  # of peak: fp32, except on the next line's GPUs; 0.77 on an H100 (its probes)
    matmul_fp32_gddr: float = (
        0.5  # ... on GPUs with GDDR and 128 lanes a multiprocessor, half of which also do integers
    )
    tf32: float = 0.64  # of peak: ConvNeXt's products on an H200 (results/h200/kernels-convnext.csv)
    # Fused attention.
    attention: float = 0.4  # of peak: torch's kernels in half precision, about what FlashAttention-2's paper reports
    attention_fp32: float = 0.25  # of peak in fp32, with TF32 or without: free lunch of ViT on an H100 (results/h100)
    cudnn: float = 0.5  # of peak: cuDNN's kernels, which torch prefers on Hopper since 2.5
    # Memory traffic. Copies reach 0.89 of an H100's bandwidth (its probes).
    fused: float = 0.85  # of bandwidth: loops that torch.compile fused
    eager_hbm: float = 0.6  # of bandwidth: all else on HBM
    eager_gddr: float = 0.7  # of bandwidth: all else on GDDR
    # What needs no tensor cores. The first three are ConvNeXt's on an H200 (results/h200): channels last of its step by
    # kernel, channels first by timing convolutions alone.
    depthwise_forward: float = 0.147  # of `Machine.lanes`: depthwise convolutions, except their gradients in fp32
    depthwise_last: float = 0.02  # of `Machine.lanes`: these gradients, channels last
    depthwise: float = 0.047  # of `Machine.lanes`: these gradients, channels first, as the paper ran them
    scan: float = 0.2  # of `Machine.lanes`: Mamba's scan, free lunch on an H100 (results/h100)
    launch: float = 5e-6  # seconds that a kernel adds; an almost empty one takes 7.9e-6 on an H100 (its probes)
    # Links.
    nvlink: float = 0.5  # of the link: NVLink, through switches or a bridge
    pcie: float = 0.5  # of the link: PCIe between GPUs
    host: float = 0.4  # of PCIe between a GPU and the host


# What we have timed nowhere alone.
CANDIDATES = (
    *("matmul_half", "matmul_half_geforce", "matmul_fp32", "matmul_fp32_gddr"),
    *("attention", "cudnn", "eager_hbm", "eager_gddr", "nvlink", "host"),
)
PAPERS = "papers_compiled"


@dataclass(frozen=True)
class Queue:
    """The number of launches that the host runs ahead of the GPU, and the seconds to submit one, for eager and for
    compiled code: from 13 trials with both clocks (results/h100). Code compiled by the paper's torch 2.3.1 has its own
    number, which is fitted."""

    eager: float = 970.0
    compiled: float = 820.0
    papers_compiled: float = 600.0
    launch: float = 40e-6
    launch_compiled: float = 20e-6
