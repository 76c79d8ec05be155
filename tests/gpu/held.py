"""Whether check.sh's runs did what they should: `python tests/gpu/held.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Rows = dict[tuple[str, str], dict[str, Any]]


def records(folder: Path) -> Rows:
    """A run's records by recipe and settings."""
    rows = (json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines())
    return {(row["recipe"], row["settings"]): row for row in rows}


def ran(rows: Rows, count: int) -> None:
    """Each of `count` trials was measured, by the device's clock too, with what its settings name."""
    assert len(rows) == count, f"{len(rows)} trials, {count} were asked for"
    for (recipe, settings), row in rows.items():
        told = f"{recipe} {settings}: {row['status']} {row['reason']} {row['warnings']}"
        assert row["status"] == "ok", told
        assert not any("crashed" in warning for warning in row["warnings"]), told
        assert all(seconds > 0 for part in row["device_times"][0].values() for seconds in part), told
        assert [peak for _, peak in row["peaks"]] == sorted(peak for _, peak in row["peaks"]), told
        assert row["gpu_state"], told
        wrapper = "DeepSpeedEngine" if "zero" in settings else "FSDPModule" if "fsdp" in settings else "none"
        assert row["wrapper"].startswith(wrapper), f"{told}: {row['wrapper']}"
        compiled = settings != "naive" and "zero" not in settings
        assert row["compiled"] == compiled, told
        assert not compiled or row["graphs"]["compiled"] > 0, told


def main(folder: Path) -> None:
    ran(records(folder / "search"), 13)
    ran(records(folder / "compiled"), 4)
    naive = records(folder / "naive")
    predicted = {row["model"]: row["micro_batch"] for row in json.loads((folder / "predicted.json").read_text())}
    found = {recipe: row["micro_batch"] for (recipe, _), row in naive.items()}
    assert {row["status"] for row in naive.values()} == {"ok", "out_of_memory"}
    assert found == predicted, f"micro batches: {found}, predicted {predicted}"
    print("gpu: all held; naive micro batches on an H200, as predicted:", json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
