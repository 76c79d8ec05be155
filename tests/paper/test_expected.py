"""What the paper printed is read as printed, and a broken file is told by line and column."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.claims.claim import listed
from repro.claims.statements import statements
from repro.console import UserError
from repro.formats import yes
from repro.lab.specification import lab_runs
from repro.money import prices
from repro.paper import tables
from repro.paper.gpus import catalogue
from repro.paper.measured_days import measured_days
from repro.paper.settings import Settings
from repro.paper.tables import Cell, cells, printed_recipes, published_settings
from repro.predict.published import published
from repro.survey.allocations import cards
from repro.survey.questions import questions
from tests.support.command_line import refusal

# Each file of expected/, and what reads it.
READERS: dict[str, Callable[[], object]] = {
    "analytic_peaks.csv": tables.analytic_peaks,
    "appendix_j.csv": tables.published_settings,
    "claims.csv": listed,
    "elsewhere.csv": published,
    "figure6.csv": tables.original_trainings,
    "figure9.csv": tables.training_compute,
    "gpu_prices.csv": prices.other_gpu_prices,
    "gpus.csv": catalogue,
    "in_proportion.csv": prices.in_proportion,
    "lab.csv": lab_runs,
    "measured.csv": measured_days,
    "quantities.csv": tables.quantities,
    "rental.csv": prices.known_rentals,
    "statements.csv": statements,
    "survey_cards.csv": cards,
    "survey_questions.csv": questions,
    "systems.csv": prices.known_systems,
    "table1.csv": lambda: tables.cells("1"),
    "table3.csv": tables.printed_recipes,
    "table4.csv": lambda: tables.cells("4"),
    "table5.csv": prices.gpu_prices,
    "table6.csv": prices.parts,
    "table7.csv": prices.servers,
}


def breaks(folder: Path, file: str, line: int, old: str, new: str) -> None:
    path = folder / file
    lines = path.read_text().split("\n")
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path.write_text("\n".join(lines))


def complaint(read: Callable[[], object], folder: Path) -> str:
    with pytest.raises(UserError) as error:
        read()
    message = str(error.value)
    assert "\n" not in message
    return message.removeprefix(f"{folder}/")


def table1() -> tuple[Cell, ...]:
    return cells("1")


# --- The tables as printed ---


def test_both_tables_hold_144_cells_and_231_numbers_of_days() -> None:
    both = {table: cells(table) for table in ("1", "4")}
    assert {table: len(found) for table, found in both.items()} == {"1": 144, "4": 144}
    days = {table: sum(cell.state == "days" for cell in found) for table, found in both.items()}
    assert days == {"1": 140, "4": 91}


def test_a_cell_is_spelled_as_in_the_paper() -> None:
    found = {(cell.model, cell.gpu, cell.gpus): cell for cell in cells("1")}
    cell = found["Pythia-1B", "A100", 4]
    assert (cell.days, cell.state, cell.source) == (18, "days", "paper, Table 1")
    infeasible = found["Pythia-6.9B", "H100", 1]
    assert (infeasible.days, infeasible.state) == (None, "infeasible")


def test_the_one_lost_cell_is_convnext_on_one_h100_in_table_4() -> None:
    lost = [(cell.model, cell.gpu, cell.gpus) for table in ("1", "4") for cell in cells(table) if cell.state == "lost"]
    assert lost == [("ConvNeXt", "H100", 1)]


def test_appendix_j_has_settings_for_exactly_the_feasible_cells_of_table_1() -> None:
    feasible = [(cell.model, cell.gpu, cell.gpus) for cell in cells("1") if cell.state == "days"]
    assert [(row.model, row.gpu, row.gpus) for row in published_settings()] == feasible


def test_table_3_reads_rounded_numbers_and_dashes() -> None:
    recipes = printed_recipes()
    pythia, vit = recipes["Pythia-1B"], recipes["ViT"]
    assert (pythia.parameters, pythia.training_steps, pythia.batch_size) == (1_000_000_000, 143_000, 1024)
    assert vit.parameters == 330_000_000
    assert (pythia.mixed_precision, pythia.image_size, vit.mixed_precision, vit.vocabulary) == (
        "bf16",
        None,
        None,
        None,
    )
    assert len(recipes) == 9


def test_every_row_names_its_source() -> None:
    assert {cell.source for table in ("1", "4") for cell in cells(table)} == {
        "paper, Table 1",
        "paper, Table 4",
    }
    assert all(row.source.startswith("paper, Appendix J") for row in published_settings())
    assert all(row.source.startswith("paper, Table 3") for row in printed_recipes().values())


# --- Lost marks ---


def settings_of(model: str, gpu: str, gpus: int) -> list[Settings]:
    rows = {(row.model, row.gpu, row.gpus): row for row in published_settings()}
    return rows[model, gpu, gpus].readings()


def test_settings_without_a_lost_mark_have_one_reading() -> None:
    assert settings_of("Pythia-410M", "A100", 8) == [Settings(True, False, "zero_1", False)]


def test_lost_marks_give_every_reading_that_appendix_f_allows() -> None:
    # Printed: free lunch, sharding zero_1; checkpointing and offloading lost.
    assert settings_of("Pythia-2.8B", "A6000", 4) == [
        Settings(True, False, "zero_1", False),
        Settings(True, False, "zero_1", True),
        Settings(True, True, "zero_1", False),
        Settings(True, True, "zero_1", True),
    ]


def test_a_lost_sharding_without_offloading_has_six_readings() -> None:
    shardings = [reading.sharding for reading in settings_of("ViT", "H100", 2)]
    assert shardings == ["none", "zero_1", "zero_2", "zero_3", "fsdp_2", "fsdp_3"]


@pytest.mark.parametrize("offloading", [True, False])
def test_a_lost_sharding_on_one_gpu_follows_from_offloading(offloading: bool, expected: Path) -> None:
    breaks(expected, "appendix_j.csv", 2, "none,no,8", f"?,{yes(offloading)},8")
    shardings = [reading.sharding for reading in published_settings()[0].readings()]
    assert "none" not in shardings if offloading else shardings == ["none"]


# --- Broken files ---


# A file and line, a text of it, another in its place, and what is said then.
BROKEN = """
table1.csv 2 | ,41, | ,forty, | $.days: found 'forty', expected a whole number of days, -
table1.csv 2 | ,41, | ,0, | $.days: found '0'
table1.csv 2 | ,41, | ,4.5, | $.days: found '4.5'
table1.csv 7 | ,2, | ,3, | $.gpus: found '3', expected one of 1, 2, 4, 8
table1.csv 7 | ,2, | ,, | $.gpus: found ''
table1.csv 3 | Pythia-160M | Pythia-161M | $.model: found 'Pythia-161M', expected one of Pythia-160M,
table1.csv 3 | RTX 3090 | RTX 3O90 | $.gpu: found 'RTX 3O90', expected one of RTX 3090, A6000,
table1.csv 3 | ,2, | ,1, | $.gpus: found '1', expected Pythia-160M, RTX 3090, 1 only once, and line 2 has it
table1.csv 5 | ,3, | , | too few fields, expected 5
table1.csv 5 | ,3, | ,3,4, | too many fields, expected 5
table1.csv 5 | "paper, Table 1" |  | $.source: found '', expected some text
table1.csv 1 | days | dayz | $.days: found no such column, expected the columns model,gpu,gpus,days,
table1.csv 1 | gpus, | gpu, | $.gpu: found it twice
table1.csv 145 | ,8, | ,4, | $.gpus: found '4', expected ViT, H100, 4 only once, and line 144 has it
table1.csv 145 | Table 1" | Table 1 | not CSV (unexpected end of data)
appendix_j.csv 2 | yes,no | yse,no | $.free_lunch: found 'yse', expected yes, no or ? (lost mark)
appendix_j.csv 3 | zero_1 | zero_4 | $.sharding: found 'zero_4', expected none, zero_1, zero_2,
appendix_j.csv 3 | ,64, | ,-64, | $.gas: found '-64', expected a whole number from 1 up
appendix_j.csv 3 | ,64, | ,32, | $.gas: found '32', expected gpus x mbs x gas = 1024, the batch size of Pythia-160M
appendix_j.csv 2 | none | zero_1 | $.sharding: found 'zero_1', expected sharding and offloading together on 1 GPU
appendix_j.csv 3 | zero_1,no | none,yes | $.sharding: found 'none', expected a sharding where there is
table3.csv 2 | 143K | 143k | $.training_steps: found '143k', expected a number such as 143K
table3.csv 2 | 143K | 0K | $.training_steps: found '0K', expected a number such as 143K
table3.csv 2 | fp16 | fp8 | $.mixed_precision: found 'fp8', expected fp16, bf16 or N/A
table3.csv 2 | Pythia | Pithia | $.model: found 'Pithia-160M', expected one of
table3.csv 3 | Pythia-410M | Pythia-160M | $.model: found 'Pythia-160M', expected Pythia-160M only once
rental.csv 2 | RTX 4090 | RTX 4O90 | $.gpu: found 'RTX 4O90', expected a GPU of gpus.csv
rental.csv 3 | spot | sport | $.terms: found 'sport', expected one of on-demand, res
rental.csv 4 | USD | US$ | $.currency: found 'US$', expected three capital letters
rental.csv 2 | ,1,0.69, | ,0,0.69, | $.hours: found '0', expected a number above 0
rental.csv 2 | ,1,0.69, | ,2,0.69, | $.hours: found '2', expected 1 as terms is on-
rental.csv 8 | ,43800, | ,1, | $.hours: found '1', expected more than 1 as terms is
table5.csv 2 | RTX 3090 | RTX 3O90 | $.gpu: found 'RTX 3O90', expected a GPU of gpus.csv
analytic_peaks.csv 5 | ,756, | ,0, | $.fp16_tflops: found '0', expected a number
analytic_peaks.csv 5 | H100 | H1O0 | $.gpu: found 'H1O0', expected a GPU of gpus.csv
measured.csv 2 | Pythia-160M | Pythia-161M | $.model: found 'Pythia-161M', expected one of
figure6.csv 2 | Pythia | Pithia | $.model: found 'Pithia-160M', expected one of
figure9.csv 2 | 2.9e20 | 0 | $.training_flops: found '0', expected a number above 0, from 1e-30 to 1e+30
figure9.csv 2 | 2.9e20 | nan | $.training_flops: found 'nan', expected a number above 0, from 1e-30 to 1e+30
figure9.csv 2 | 2.9e20 | inf | $.training_flops: found 'inf', expected a number above 0
figure9.csv 2 | 2.9e20 | -1 | $.training_flops: found '-1', expected a number above 0
figure9.csv 2 | 2.9e20 | 1_000 | $.training_flops: found '1_000', expected a number above 0
figure9.csv 2 | 2.9e20 |  1 | $.training_flops: found ' 1', expected a number above 0
figure9.csv 2 | 2.9e20 | 1e400 | $.training_flops: found '1e400', expected a number above 0
figure9.csv 2 | 2.9e20 | 0x1 | $.training_flops: found '0x1', expected a number above 0
lab.csv 6 | ,30522.1, | ,0, | $.seconds: found '0', expected a number above 0
gpus.csv 2 | ,Ampere,8.6,24, | ,Amper,8.6,24, | $.generation: found 'Amper', expected one of Volta,
gpus.csv 2 | ,8.6,24, | ,86,24, | $.compute_capability: found '86', expected major.minor, such as 8.6
gpus.csv 2 | ,24,,35.6, | ,24GB,,35.6, | $.memory_gb: found '24GB', expected a number above 0
gpus.csv 2 | ,71,71, | ,0,71, | $.fp16_tflops: found '0', expected a number above 0
gpus.csv 2 | ,Ampere, | ,Turing, | $.tf32_tflops: found '35.6', expected nothing, as Turing has no TF32
gpus.csv 2 | PCIe 4.0 x16 | PCIe 40 x16 | $.link: found 'NVLink bridge 112.5 GB/s (pairs); PCIe 40 x16', expected a link
gpus.csv 3 | GeForce RTX 4090 | NVIDIA RTX 3090 | $.name: found 'RTX 4090', expected rtx 3090 only once
"""


@pytest.mark.parametrize("case", BROKEN.strip().splitlines())
def test_a_broken_line_is_reported_by_its_place_and_what_was_expected(expected: Path, case: str) -> None:
    place, old, new, output = case.split(" | ")
    file, line = place.split()
    breaks(expected, file, int(line), old, new)
    separator = ", " if output.startswith("$") else ": "
    assert complaint(READERS[file], expected).startswith(f"{file}, line {line}{separator}{output}")


def test_a_command_that_reads_a_broken_file_is_refused(expected: Path) -> None:
    breaks(expected, "rental.csv", 2, "RTX 4090", "RTX 4O90")
    assert refusal("cost", "vit").startswith(f"repro: {expected / 'rental.csv'}, line 2, $.gpu: found 'RTX 4O90'")


@pytest.mark.parametrize(
    ("command", "file", "start", "named"),
    [
        (["cost", "pythia-1b"], "quantities.csv", "paper/lifespan,", "paper/lifespan"),
        (["claims"], "analytic_peaks.csv", "H100,", "H100"),
    ],
)
def test_a_row_that_is_looked_up_and_is_not_there_is_named(
    expected: Path, command: list[str], file: str, start: str, named: str
) -> None:
    lines = (expected / file).read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(start)]
    assert len(kept) == len(lines) - 1
    (expected / file).write_text("".join(kept))
    assert refusal(*command).startswith(f"repro: {expected / file}: found no row for {named}, expected one; restore it")


def test_a_price_at_which_a_claim_has_no_machine_left_is_reported_with_its_file(expected: Path) -> None:
    breaks(expected, "table5.csv", 2, "1300", "130000")
    output = f"repro: {expected / 'table5.csv'}: found no price that puts a machine in the range that the claim is of"
    assert refusal("claims").startswith(f"{output} for RTX 3090, expected one; restore it")


def test_of_rows_named_by_several_columns_the_first_is_reported_twice(expected: Path) -> None:
    file = expected / "rental.csv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines, lines[1]]))
    output = complaint(prices.known_rentals, expected)
    assert f"line {len(lines) + 1}, $.gpu: found 'RTX 4090', expected RTX 4090, 1, RunPod, on-demand" in output
    assert output.endswith("only once, and line 2 has it")


def test_a_table_cut_short_is_missing_a_row(expected: Path) -> None:
    file = expected / "table1.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert complaint(table1, expected).startswith("table1.csv: found no row for ViT, H100, 8, expected one; restore it")


def test_a_table_of_a_header_alone_is_missing_its_first_row(expected: Path) -> None:
    file = expected / "table1.csv"
    file.write_text(file.read_text().splitlines(keepends=True)[0])
    assert complaint(table1, expected).startswith("table1.csv: found no row for Pythia-160M, RTX 3090, 1, expected one")


def test_table_3_without_one_of_the_models_is_reported_itself(expected: Path) -> None:
    file = expected / "table3.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert complaint(table1, expected).startswith("table3.csv: found no row for ViT, expected one")


def test_an_empty_file_lacks_its_first_column(expected: Path) -> None:
    (expected / "table1.csv").write_text("")
    assert "table1.csv, line 1, $.model: found no such column" in complaint(table1, expected)


def test_a_file_that_is_not_utf8_is_reported_by_line_and_path(expected: Path) -> None:
    file = expected / "table1.csv"
    file.write_bytes(file.read_bytes().replace(b"RTX 3090,2", b"RTX\xa03090,2", 1))
    assert "line 3: not text in UTF-8 (invalid start byte)" in complaint(table1, expected)


def test_a_header_in_another_encoding_is_not_utf8(expected: Path) -> None:
    file = expected / "table1.csv"
    file.write_bytes(file.read_text().encode("utf-16"))
    assert "line 1: not text in UTF-8" in complaint(table1, expected)


def test_a_missing_file_says_how_to_get_it_back(expected: Path) -> None:
    (expected / "appendix_j.csv").unlink()
    assert complaint(published_settings, expected).startswith("appendix_j.csv: not found")
    (expected / "appendix_j.csv").mkdir()
    assert complaint(published_settings, expected).startswith("appendix_j.csv: cannot be read (Is a directory)")


def test_what_a_spreadsheet_adds_is_harmless(expected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in expected.glob("*.csv"):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    found = table1(), published_settings()
    monkeypatch.delenv("REPRO_EXPECTED")
    assert (table1(), published_settings()) == found


def test_the_environment_can_name_another_folder_at_any_time(expected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(expected, "table1.csv", 2, ",41,", ",42,")
    assert cells("1")[0].days == 42
    monkeypatch.delenv("REPRO_EXPECTED")
    assert cells("1")[0].days == 41


def test_a_file_is_opened_once_however_many_ask_for_it() -> None:
    code = """
import collections, sys
opened = collections.Counter()
sys.addaudithook(lambda event, args: event == "open" and opened.update([str(args[0])]))
from repro import cli
cli.main(["audit", "--format", "csv"])
print({name: times for name, times in opened.items() if "/expected/" in name and times > 1}, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr == "{}\n"
