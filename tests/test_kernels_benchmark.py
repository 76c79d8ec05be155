"""The profile of a micro-step groups kernels by what they do, and needs a GPU."""

from __future__ import annotations

import pytest

from benchmarks.kernels import Kernel, by_kind, kind_of, main


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("void at::native::(anonymous namespace)::conv_depthwise2d_backward_kernel<0, float, int>(...)", "depthwise"),
        (
            "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, float>(...)",
            "depthwise",
        ),
        ("void wgrad2d_grouped_direct_kernel<float, float, float, int, false>(...)", "depthwise"),
        ("sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16", "convolution"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN", "matrix product"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(...)", "matrix product"),
        ("triton_per_fused_native_layer_norm_native_layer_norm_backward_13", "layer norm, compiled"),
        ("triton_red_fused_sum_7", "reduction, compiled"),
        ("triton_poi_fused_gelu_gelu_backward_3", "pointwise, compiled"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>", "optimizer"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("Memset (Device)", "copies"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(...)", "pointwise"),
        ("pytorch_flash::flash_fwd_kernel<...>", "attention"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)", "communication"),
        ("spin_kernel", "other"),
    ],
)
def test_a_kernel_is_of_the_kind_that_its_name_says(name: str, kind: str) -> None:
    assert kind_of(name).startswith(kind)


def test_kernels_of_one_kind_add_up_within_a_part_longest_first() -> None:
    kernels = [
        Kernel("micro-step", "ampere_sgemm_64x64_nn", 3, 1.0),
        Kernel("micro-step", "triton_poi_fused_gelu_0", 5, 9.0),
        Kernel("micro-step", "ampere_sgemm_32x32_nt", 4, 2.0),
        Kernel("update", "ampere_sgemm_64x64_nn", 1, 0.5),
    ]
    assert by_kind(kernels) == [
        Kernel("micro-step", "pointwise, compiled", 5, 9.0),
        Kernel("micro-step", "matrix product", 7, 3.0),
        Kernel("update", "matrix product", 1, 0.5),
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"), [(["--models", "convnxt"], "did you mean convnext, "), ([], "no GPU here")]
)
def test_what_cannot_be_profiled_is_said_in_one_line(
    arguments: list[str], reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kernels", *arguments])
    with pytest.raises(SystemExit):
        main()
    assert reason in capsys.readouterr().err.splitlines()[-1]
