"""What the paper printed is read as printed, and a broken file is told by line and column."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.console import UserError
from repro.formats import yes
from repro.money.prices import known_rentals
from repro.paper.settings import Settings
from repro.paper.tables import Cell, cells, printed_recipes, published_settings, training_compute
from tests.command_line import refusal


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
    tables = {table: cells(table) for table in ("1", "4")}
    assert {table: len(found) for table, found in tables.items()} == {"1": 144, "4": 144}
    days = {table: sum(cell.state == "days" for cell in found) for table, found in tables.items()}
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


@pytest.mark.parametrize(
    ("line", "old", "new", "output"),
    [
        (2, ",41,", ",forty,", "line 2, $.days: found 'forty', expected a whole number of days, -"),
        (2, ",41,", ",0,", "line 2, $.days: found '0'"),
        (2, ",41,", ",4.5,", "line 2, $.days: found '4.5'"),
        (7, ",2,", ",3,", "line 7, $.gpus: found '3', expected one of 1, 2, 4, 8"),
        (7, ",2,", ",,", "line 7, $.gpus: found ''"),
        (
            3,
            "Pythia-160M",
            "Pythia-161M",
            "line 3, $.model: found 'Pythia-161M', expected one of Pythia-160M,",
        ),
        (
            3,
            "RTX 3090",
            "RTX 3O90",
            "line 3, $.gpu: found 'RTX 3O90', expected one of RTX 3090, A6000,",
        ),
        (3, ",2,", ",1,", "expected Pythia-160M, RTX 3090, 1 only once, and line 2 has it"),
        (5, ",3,", ",", "line 5: too few fields, expected 5"),
        (5, ",3,", ",3,4,", "line 5: too many fields, expected 5"),
        (5, '"paper, Table 1"', "", "line 5, $.source: found '', expected some text"),
        (
            1,
            "days",
            "dayz",
            "line 1, $.days: found no such column, expected the columns model,gpu,gpus,days,",
        ),
        (1, "gpus,", "gpu,", "line 1, $.gpu: found it twice"),
        (
            145,
            ",8,",
            ",4,",
            "line 145, $.gpus: found '4', expected ViT, H100, 4 only once, and line 144 has it",
        ),
    ],
)
def test_a_broken_table_1_is_reported_by_line_and_path(
    expected: Path, line: int, old: str, new: str, output: str
) -> None:
    breaks(expected, "table1.csv", line, old, new)
    assert output in complaint(table1, expected)


@pytest.mark.parametrize(
    ("line", "old", "new", "output"),
    [
        (
            2,
            "yes,no",
            "yse,no",
            "line 2, $.free_lunch: found 'yse', expected yes, no or ? (lost mark)",
        ),
        (
            3,
            "zero_1",
            "zero_4",
            "line 3, $.sharding: found 'zero_4', expected none, zero_1, zero_2,",
        ),
        (3, ",64,", ",-64,", "line 3, $.gas: found '-64', expected a whole number from 1 up"),
        (
            3,
            ",64,",
            ",32,",
            "line 3, $.gas: found '32', expected gpus x mbs x gas = 1024, "
            "the batch size of Pythia-160M in table3.csv, not 512",
        ),
        (
            2,
            "none",
            "zero_1",
            "line 2, $.sharding: found 'zero_1', expected sharding and offloading together on 1 GPU",
        ),
        (
            3,
            "zero_1,no",
            "none,yes",
            "line 3, $.sharding: found 'none', expected a sharding where there is",
        ),
    ],
)
def test_a_broken_appendix_j_is_reported_by_line_and_path(
    expected: Path, line: int, old: str, new: str, output: str
) -> None:
    breaks(expected, "appendix_j.csv", line, old, new)
    assert output in complaint(published_settings, expected)


@pytest.mark.parametrize(
    ("line", "old", "new", "output"),
    [
        (
            2,
            "143K",
            "143k",
            "line 2, $.training_steps: found '143k', expected a number such as 143K",
        ),
        (2, "143K", "0K", "line 2, $.training_steps: found '0K', expected a number such as 143K"),
        (2, "fp16", "fp8", "line 2, $.mixed_precision: found 'fp8', expected fp16, bf16 or N/A"),
        (
            3,
            "Pythia-410M",
            "Pythia-160M",
            "line 3, $.model: found 'Pythia-160M', expected Pythia-160M only once",
        ),
    ],
)
def test_a_broken_table_3_is_reported_by_line_and_path(
    expected: Path, line: int, old: str, new: str, output: str
) -> None:
    breaks(expected, "table3.csv", line, old, new)
    assert output in complaint(printed_recipes, expected)


@pytest.mark.parametrize(
    ("file", "line", "old", "new", "output"),
    [
        (
            "rental.csv",
            2,
            "RTX 4090",
            "RTX 4O90",
            "line 2, $.gpu: found 'RTX 4O90', expected a GPU of gpus.csv",
        ),
        ("rental.csv", 3, "spot", "sport", "line 3, $.terms: found 'sport', expected one of on-demand, res"),
        ("rental.csv", 4, "USD", "US$", "line 4, $.currency: found 'US$', expected three capital letters"),
        (
            "table5.csv",
            2,
            "RTX 3090",
            "RTX 3O90",
            "line 2, $.gpu: found 'RTX 3O90', expected a GPU of gpus.csv",
        ),
    ],
)
def test_a_broken_price_is_reported_by_line_and_path(
    expected: Path, file: str, line: int, old: str, new: str, output: str
) -> None:
    breaks(expected, file, line, old, new)
    assert refusal("cost", "pythia-1b").startswith(f"repro: {expected / file}, {output}")


@pytest.mark.parametrize(
    ("command", "file", "line", "old", "new", "output"),
    [
        (
            "claims",
            "analytic_peaks.csv",
            5,
            ",756,",
            ",0,",
            "$.fp16_tflops: found '0', expected a number",
        ),
        ("claims", "analytic_peaks.csv", 5, "H100", "H1O0", "$.gpu: found 'H1O0', expected a GPU of gpus.csv"),
        (
            "claims",
            "figure6.csv",
            2,
            "Pythia",
            "Pithia",
            "$.model: found 'Pithia-160M', expected one of",
        ),
        ("claims", "figure9.csv", 2, "2.9e20", "0", "$.training_flops: found '0', expected a number above"),
        ("claims", "lab.csv", 6, ",30522.1,", ",0,", "$.seconds: found '0', expected a number above 0"),
        ("cost vit", "rental.csv", 2, ",1,0.69,", ",0,0.69,", "$.hours: found '0', expected a number above 0"),
        (
            "cost vit",
            "rental.csv",
            2,
            ",1,0.69,",
            ",2,0.69,",
            "$.hours: found '2', expected 1 as terms is on-",
        ),
        (
            "cost vit",
            "rental.csv",
            8,
            ",43800,",
            ",1,",
            "$.hours: found '1', expected more than 1 as terms is",
        ),
        ("audit", "table3.csv", 2, "Pythia", "Pithia", "$.model: found 'Pithia-160M', expected one of"),
    ],
)
def test_what_is_divided_by_or_looked_up_is_checked_where_it_is_read(
    expected: Path, command: str, file: str, line: int, old: str, new: str, output: str
) -> None:
    breaks(expected, file, line, old, new)
    assert refusal(*command.split()).startswith(f"repro: {expected / file}, line {line}, {output}")


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


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "1_000", " 1", "1e400", "0x1"])
def test_what_python_takes_for_a_number_and_people_do_not_is_none(expected: Path, number: str) -> None:
    breaks(expected, "figure9.csv", 2, "2.9e20", number)
    output = complaint(training_compute, expected)
    wanted = "a number above 0, from 1e-30 to 1e+30"
    assert output == f"figure9.csv, line 2, $.training_flops: found {number!r}, expected {wanted}"


def test_of_rows_named_by_several_columns_the_first_is_reported_twice(expected: Path) -> None:
    file = expected / "rental.csv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines, lines[1]]))
    output = complaint(known_rentals, expected)
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


def test_a_quote_left_open_is_no_csv(expected: Path) -> None:
    breaks(expected, "table1.csv", 145, 'Table 1"', "Table 1")
    assert "line 145: not CSV (unexpected end of data)" in complaint(table1, expected)


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
