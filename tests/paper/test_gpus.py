"""GPUs are recognised by their whole name, counted as CUDA counts them, never taken for what they are not."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from repro.commands.devices import parse_gpus
from repro.console import UserError
from repro.machine.devices import Device, mask
from repro.machine.host import host
from repro.models.recipe import Precision
from repro.paper.gpus import AMD, GENERATIONS, CustomGpu, Gpu, catalogue, find, peak_flops
from repro.paper.tables import cells
from repro.predict.fits import EVERYTHING, fitted_constants
from repro.predict.hardware import Machine
from tests.support.command_line import answer, one_line, repro

GPUS = {gpu.name: gpu for gpu in catalogue()}
NO_TF32 = ("Volta", "Turing")

# --- The catalogue ---


@pytest.mark.parametrize("gpu", catalogue(), ids=lambda gpu: gpu.name)
def test_a_gpu_has_every_figure_and_its_source(gpu: Gpu) -> None:
    assert None not in (gpu.fp32_tflops, gpu.fp16_tflops, gpu.bandwidth_gb_s, gpu.board_power_w)
    assert re.search(r"(NVIDIA|AMD) .+ \(20\d\d\)", gpu.source) or gpu.name == "Quadro RTX 8000", "its card's seller"
    assert "PCIe" in gpu.link or "NVLink-C2C" in gpu.link


def test_tf32_and_bf16_are_blank_on_volta_and_turing_only() -> None:
    for gpu in GPUS.values():
        blank = gpu.generation in NO_TF32
        assert (gpu.tf32_tflops is None, gpu.bf16_tflops is None) == (blank, blank), gpu.name
        assert (gpu.compute_capability < (8, 0)) == blank, gpu.name


def test_dense_peaks_keep_the_ratios_of_the_hardware() -> None:
    for gpu in GPUS.values():
        if gpu.generation not in NO_TF32:
            fp16 = gpu.fp16_tflops
            assert fp16
            assert gpu.bf16_tflops == fp16, gpu.name
            assert gpu.tf32_tflops == pytest.approx(fp16 / 2, rel=0.015), gpu.name


def test_geforce_peaks_accumulate_in_fp32() -> None:
    # With fp16 accumulation NVIDIA prints twice as much: 107.6, 142, 330.3 and 419.
    geforce = ("RTX 2080 Ti", "RTX 3090", "RTX 4090", "RTX 5090")
    assert [GPUS[name].fp16_tflops for name in geforce] == [53.8, 71, 165.2, 209.5]
    newer = [gpu for gpu in GPUS.values() if gpu.name.startswith(("RTX 40", "RTX 50"))]
    assert len(newer) == 9
    for gpu in newer:
        assert gpu.fp16_tflops == pytest.approx(2 * (gpu.fp32_tflops or 0.0), rel=0.005), gpu.name


def test_peaks_are_without_sparsity() -> None:
    assert [GPUS[name].bf16_tflops for name in ("A100 80 GB", "H100 SXM", "H200", "B200")] == [
        312,
        989.4,
        989.4,
        2250,
    ]


def test_the_gpus_of_the_tables_are_the_authors_parts() -> None:
    ours = {gpu.paper_name: gpu.name for gpu in GPUS.values() if gpu.paper_name}
    assert ours == {"RTX 3090": "RTX 3090", "A6000": "RTX A6000", "A100": "A100 80 GB", "H100": "H100 SXM"}
    assert {cell.gpu for cell in cells("1")} == set(ours)


def test_generations_are_in_the_order_of_their_compute_capability() -> None:
    capabilities = [
        min(gpu.compute_capability for gpu in GPUS.values() if gpu.generation == name) for name in GENERATIONS
    ]
    assert capabilities == sorted(capabilities)
    assert {gpu.generation for gpu in GPUS.values()} - {*GENERATIONS} == {AMD}


def test_a_gpu_of_another_vendor_has_its_link_and_no_interval() -> None:
    eight, fits = Machine(GPUS["MI300X"], 8), fitted_constants()[EVERYTHING]
    assert (eight.link, eight.link_bytes, eight.kind) == ("nvlink", 448e9, "CDNA 3 with HBM")
    assert fits.interval(eight) is None
    assert "never measured" in GPUS["MI300X"].source
    described = repro("predict", "--gpu", "docs/own-amd-gpu.toml", "--models", "pythia-1b", "--format", "json")
    shipped = answer("predict", "--gpu", "MI300X", "--models", "pythia-1b")
    assert [row["days"] for row in json.loads(described.stdout)] == [row["days"] for row in shipped]


def test_a_chip_without_pcie_copies_over_its_own_link() -> None:
    spark = Machine(GPUS["GB10"], 1)
    assert (spark.host_bytes, spark.wide_lanes, spark.stacked) == (300e9, True, False)
    pair = Machine(GPUS["GB10"], 1, nodes=2)
    assert pair.link_bytes == 25e9


# --- Recognition ---


def name_of(name: str) -> str | None:
    gpu = find(name)
    return gpu.name if gpu else None


@pytest.mark.parametrize(
    ("driver_name", "name"),
    [
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("GeForce RTX 3090", "RTX 3090"),  # a driver before 470
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100 16 GB"),
        ("Tesla V100-SXM2-32GB", "V100 32 GB"),
        ("Tesla V100-PCIE-32GB", "V100 32 GB PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
        ("A100-PCIE-40GB", "A100 40 GB PCIe"),
        ("NVIDIA A100-SXM-80GB", "A100 80 GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80 GB PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA GH200 480GB", "GH200"),
    ],
)
def test_a_gpu_is_recognised_by_the_name_that_the_driver_gives(driver_name: str, name: str) -> None:
    assert name_of(driver_name) == name


def test_a_gpu_is_found_by_our_name_and_by_the_papers() -> None:
    assert name_of("a100") == name_of("A100 80 GB") == "A100 80 GB"
    assert name_of("A6000") == "RTX A6000"
    assert name_of("H100") == "H100 SXM"
    assert name_of("a100 80gb") == "A100 80 GB"
    assert name_of("RTX4090") == name_of("NVIDIA GeForce RTX 4090") == "RTX 4090"


@pytest.mark.parametrize(
    "driver_name",
    [
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "NVIDIA H100 NVL",
        "NVIDIA H200 NVL",
        "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
        "NVIDIA GH200 144G HBM3e",
        "NVIDIA A10G",
        "Tesla V100-SXM3-32GB",
        "Tesla P100-PCIE-16GB",
        "",
    ],
)
def test_a_part_with_other_figures_is_unknown(driver_name: str) -> None:
    assert find(driver_name) is None


def device(driver_name: str, index: int = 0, uuid: str = "GPU-0") -> Device:
    return Device(index, index, uuid, driver_name, find(driver_name), 80 * 2**30, (9, 0))


def test_only_the_authors_part_carries_the_papers_name() -> None:
    names = {name: device(name).name for name in ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 PCIe")}
    assert list(names.values()) == ["A100", "A100 40 GB", "H100 PCIe"]


def test_an_unknown_gpu_is_called_unknown() -> None:
    assert device("NVIDIA H100 NVL").name == "unknown GPU (NVIDIA H100 NVL)"


# --- Peaks ---


@pytest.mark.parametrize(
    ("name", "precision", "without_tf32", "with_tf32"),
    [
        ("A100 80 GB", "bf16", 312e12, 312e12),
        ("A100 80 GB", "fp32", 19.5e12, 156e12),
        ("V100 16 GB", "fp32", 15.7e12, 15.7e12),
        ("T4", "fp32", 8.1e12, 8.1e12),
        ("T4", "bf16", None, None),
        ("", "fp16", None, None),
    ],
)
def test_tf32_raises_the_fp32_peak_alone_on_ampere_and_newer(
    name: str, precision: Precision, without_tf32: float | None, with_tf32: float | None
) -> None:
    peaks = [peak_flops(GPUS.get(name), precision, tf32) for tf32 in (False, True)]
    assert peaks == [without_tf32, with_tf32]


# --- Which GPUs are visible ---

FOUR = [device("NVIDIA A40", index, f"GPU-{letter}{index}") for index, letter in enumerate("abcc")]


@pytest.mark.parametrize(
    ("variable", "uuids"),
    [
        (None, ["GPU-a0", "GPU-b1", "GPU-c2", "GPU-c3"]),
        ("", []),
        ("-1", []),
        ("2", ["GPU-c2"]),
        ("3, 0", ["GPU-c3", "GPU-a0"]),
        ("1,9,0", ["GPU-b1"]),
        ("1,-1,0", ["GPU-b1"]),
        ("1,1", []),
        ("GPU-b1,GPU-a", ["GPU-b1", "GPU-a0"]),
        ("GPU-a0,GPU-c", ["GPU-a0"]),  # GPU-c begins two UUIDs
        ("nonsense", []),
    ],
)
def test_cuda_visible_devices_masks_as_cuda_reads_it(variable: str | None, uuids: list[str]) -> None:
    seen = mask(FOUR, variable)
    assert [gpu.uuid for gpu in seen] == uuids
    assert [gpu.index for gpu in seen] == list(range(len(uuids)))


def test_an_empty_entry_names_no_gpu_though_there_is_but_one() -> None:
    [only] = FOUR[:1]
    assert [mask([only], variable) for variable in ("0,", "")] == [[only], []]


def test_a_number_is_of_a_gpu_and_means_its_first_slice_where_it_is_cut() -> None:
    a40, cut = device("NVIDIA A40", 0, "GPU-a"), device("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 1, "MIG-b")
    there = [a40, cut, replace(cut, index=2, uuid="MIG-c")]
    assert [each.uuid for each in mask(there, "1")] == ["MIG-b"]
    assert mask(there, "2") == []  # CUDA knows two
    assert [each.uuid for each in mask(there, "MIG-c")] == ["MIG-c"]


def test_the_host_describes_itself() -> None:
    this = host()
    assert this.cpu
    assert psutil.virtual_memory().total >= this.memory_bytes > 2**28, "all of it, or what a container has"
    assert this.kernel
    assert this.os
    assert this.physical_cores is None or this.physical_cores >= 1


# --- --gpus ---


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("all", [0, 1, 2, 3]),
        ("1", [0]),
        ("3", [0, 1, 2]),
        ("0,1", [0, 1]),
        ("3, 1", [3, 1]),
        ("1,1", [1]),
        ("device=0", [0]),
        ("device=0,2", [0, 2]),
        ('"device=0,2"', [0, 2]),
    ],
)
def test_a_bare_number_is_a_count_and_a_list_holds_indices(text: str, indices: list[int]) -> None:
    assert parse_gpus(text, available=4) == indices


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", "--gpus 5: more GPUs than there are; 4 are visible here, with indices 0 to 3"),
        ("0", "--gpus 0: a bare number is a count; for the GPU with index 0 write device=0"),
        ("0,4", "--gpus 0,4: there is no GPU 4; 4 are visible here, with indices 0 to 3"),
        ("device=7", "--gpus device=7: there is no GPU 7; 4 are visible here, with indices 0 to 3"),
        *(
            (text, f"--gpus {text}: expected all, a count such as 2, or indices such as 0,1 or device=0")
            for text in ("two", "", "1,", "-2", "0,-1", "device=", "1.5", "0-2", "²", "9" * 5000)
        ),
    ],
)
def test_gpus_that_cannot_be_had_are_refused_in_one_line(text: str, expected: str) -> None:
    with pytest.raises(UserError) as error:
        parse_gpus(text, available=4)
    assert str(error.value) == expected


@pytest.mark.parametrize("text", ["0", "-1", "0,-1", "two"])
def test_gpus_that_no_machine_has_are_reported_before_what_this_one_lacks(text: str) -> None:
    for available in (0, 4):
        with pytest.raises(UserError, match=r"^--gpus .*: (a bare|expected all)"):
            parse_gpus(text, available)


@pytest.mark.parametrize("text", ["all", "1", "device=0"])
def test_asking_for_a_gpu_where_none_is_visible_says_what_to_check(text: str) -> None:
    with pytest.raises(UserError, match="no GPU is visible here; check nvidia-smi and CUDA_VISIBLE_DEVICES"):
        parse_gpus(text, available=0)


# --- A GPU of one's own ---

OWN = """
name = "RTX 4090 of ours"
compute_capability = "8.9"
memory = "24 GB"
fp32 = "82.6 TFLOP/s"
tf32 = "82.6 TFLOP/s"
fp16 = "165.2 TFLOP/s"
bf16 = "165.2 TFLOP/s"
bandwidth = "1.008 TB/s"
power = "450 W"
link = "PCIe 4.0 x16"
price = "1599 USD"
quoted = 2022-09-20
source = "its box"
"""


@pytest.fixture
def own(tmp_path: Path) -> Callable[[str], str]:
    """A file with this content, by its path."""

    def written(content: str) -> str:
        (tmp_path / "own.toml").write_text(content)
        return str(tmp_path / "own.toml")

    return written


def test_a_gpu_of_ones_own_is_predicted_as_one_of_the_catalogue_with_its_figures(own: Callable[[str], str]) -> None:
    asked = ("predict", "--models", "pythia-410m", "--gpus", "2", "--gpu")
    ours, theirs = answer(*asked, own(OWN)), answer(*asked, "RTX 4090")
    assert [{**row, "gpu": "RTX 4090"} for row in ours] == theirs
    assert {row["gpu"] for row in ours} == {"RTX 4090 of ours"}
    assert "own.toml (its box); it stands for no cell." in repro(*asked, own(OWN)).stdout


def test_its_price_is_that_of_its_file(own: Callable[[str], str]) -> None:
    found = answer("cost", "pythia-410m", "--budget", "20000", "--gpu", own(OWN))
    assert {(row["gpu"], row["origin"]) for row in found["rows"]} == {("RTX 4090 of ours", "predicted")}
    systems = {row["gpus"]: row["price_usd"] - 1599 * row["gpus"] for row in found["rows"]}
    assert systems == {1: 1000, 2: 1500, 4: 7500, 8: 10_500}
    assert any("stands for no cell" in note for note in found["notes"])
    row = answer("cost", "pythia-410m", "--gpu", own(OWN), "--gpus", "1", "--electricity", "1")["rows"][0]
    assert row["electricity_a_run_usd"] == pytest.approx(0.45 * 24 * row["days"], rel=0.005), "its power, too"


def test_a_bridge_that_its_file_has_connects_a_pair() -> None:
    file = {"file": Path("own.toml"), "price": None, "quoted": None}
    bridged = CustomGpu(**{**vars(GPUS["RTX 3090"]), "name": "ours", **file})
    assert [Machine(bridged, gpus).link for gpus in (1, 2, 4)] == ["none", "nvlink", "pcie"]


def test_the_network_between_nodes_has_the_given_speed() -> None:
    asked = ("predict", "--models", "pythia-410m", "--methods", "free-lunch", "--gpu", "A100", "--nodes", "2")
    slow, given, usual = (answer(*asked, *more)[0] for more in (("--network", "25Gb/s"), ("--network", "25GB/s"), ()))
    assert given == usual  # 200 Gb/s
    assert slow["days"] > usual["days"]
    assert slow["seconds_communication"] == pytest.approx(8 * usual["seconds_communication"])
    pairs = (*asked[:-3], "RTX 4090", "--nodes", "2", "--gpus", "2", "--network")
    assert answer(*pairs, "200Gb/s") == answer(*pairs, "400Gb/s"), "the PCIe of a node is slower"


# A text of that file, another in its place, and what is said then; \n ends a line.
BROKEN = r"""
source = "its box"\n |  | own.toml: Object missing required field `source`; expected name,
power = "450 W" | power = "450 W"\ncolour = "red" | own.toml: unknown key 'colour'; expected name,
24 GB | 24 Gb | own.toml, $.memory: found '24 Gb', expected text with a unit such as "24 GB"
"450 W" | 450 | own.toml, $.power: found 450, expected text with a unit such as "350 W"
PCIe 4.0 x16 | fast | own.toml, $.link: found 'fast', expected a link such as PCIe 4.0 x16 or NVLink
bf16 = "165.2 | bf16 = "- | own.toml, $.bf16: found '- TFLOP/s', expected text with a unit such as "35.6 TFLOP/s"
RTX 4090 of ours | A100 | own.toml, $.name: found 'A100', expected a name that the catalogue does not
8.9 | 7.5 | own.toml, $.tf32: found '82.6 TFLOP/s', expected nothing, as GPUs of 7.5 have no tf32
bf16 = "165.2 TFLOP/s" |  | own.toml, $.bf16: found nothing, expected the peak of a 8.9
8.9 | 6.1 | own.toml, $.compute_capability: found '6.1', expected that of Volta, 7.0, or newer
quoted = 2022-09-20 |  | own.toml, $.quoted: found nothing, expected both price and quoted, its day
1599 USD | $1599 | own.toml, $.price: found '$1599', expected a sum with its currency such as "1300
price = "1599 USD"\nquoted = 2022-09-20 |  | own.toml: price is missing, such as price = "1300 USD"
name | [name | own.toml: not TOML (
"""


@pytest.mark.parametrize("case", BROKEN.strip().splitlines())
def test_a_file_that_does_not_describe_a_gpu_is_one_clear_line(own: Callable[[str], str], case: str) -> None:
    line, instead, told = (part.replace(r"\n", "\n") for part in case.split(" | "))
    assert line in OWN
    assert told in one_line(repro("cost", "pythia-410m", "--gpu", own(OWN.replace(line, instead))))
