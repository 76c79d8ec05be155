"""Whether check.sh's runs did what they should: `python tests/gpu/held.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Rows = dict[tuple[str, int, str], dict[str, Any]]


def records(folder: Path) -> Rows:
    """A run's records by recipe, number of GPUs and settings."""
    rows = (json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines())
    return {(row["recipe"], row["count"], row["settings"]): row for row in rows}


def ran(rows: Rows, number: int) -> None:
    """Each of so many trials was measured, by the device's clock too, with what its settings name."""
    assert len(rows) == number, f"{len(rows)} trials, {number} were asked for"
    for (recipe, count, settings), row in rows.items():
        crashes = row["compile_error"] + row["search_crash"]
        output = f"{count} x {recipe} {settings}: {row['status']} {row['reason']} {crashes}"
        assert row["status"] == "ok", output
        assert not crashes, output
        assert all(seconds > 0 for part in row["device_times"][0].values() for seconds in part), output
        assert [peak for _, peak in row["peaks"]] == sorted(peak for _, peak in row["peaks"]), output
        assert row["gpu_state"], output
        plain = "DistributedDataParallel"
        wrapper = "DeepSpeedEngine" if "zero" in settings else "FSDPModule" if "fsdp" in settings else plain
        assert row["wrapper"].startswith(wrapper), f"{output}: {row['wrapper']}"
        adam = "torch AdamW" if recipe == "convnext" else "torch Adam"
        if "zero" in settings:
            adam = f"deepspeed {'DeepSpeedCPUAdam' if 'offloading' in settings else 'FusedAdam'}"
        else:
            adam += f" ({'tensor by tensor' if 'offloading' in settings else 'foreach'})"
        assert row["optimizer"] == adam, f"{output}: {row['optimizer']}"
        compiled = settings != "naive" and "zero" not in settings
        assert row["compiled"] == compiled, output
        assert not compiled or row["graphs"]["compiled"] > 0, output
        assert not compiled or row["graphs"].get("layers", row["graphs"]["compiled"] == 1), output
        assert row["kernel_path"].startswith("flash_attn::") == ("flash" in settings), f"{output}: {row['kernel_path']}"


def modern(rows: Rows) -> set[str]:
    """No trial with parts crashed, and each recipe ran with what can be had of them here; returns these parts."""
    with_parts = {key: row for key, row in rows.items() if row["modern"]}
    for key, row in with_parts.items():
        assert row["status"] in ("ok", "unsupported"), f"{key}: {row['status']} {row['reason']}"
        assert not row["compile_error"] + row["search_crash"], f"{key}: {row['compile_error']} {row['search_crash']}"
    ok = {key: row["modern"]["parts"] for key, row in with_parts.items() if row["status"] == "ok"}
    assert {recipe for recipe, *_ in ok} == {recipe for recipe, *_ in rows}
    return {part for parts in ok.values() for part in parts}


def main(folder: Path) -> None:
    ran(records(folder / "search"), 13 + 23)
    ran(records(folder / "compiled"), 4)
    ran(records(folder / "flash"), 2)
    parts = sorted(modern(records(folder / "modern")) | modern(records(folder / "modern-2")))
    print("gpu: parts of modern training that were built, compiled and launched:", *parts)
    naive = records(folder / "naive")
    predicted = {row["recipe"]: row["micro_batch"] for row in json.loads((folder / "predicted.json").read_text())}
    found = {recipe: row["authors_micro_batch"] or row["micro_batch"] for (recipe, _, _), row in naive.items()}
    assert {row["status"] for row in naive.values()} == {"ok", "out_of_memory"}
    assert found == predicted, f"micro batches: {found}, predicted {predicted}"
    print("gpu: all held; naive micro batches on an H200, as predicted:", json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
