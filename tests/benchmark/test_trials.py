"""One case a trial. Its time is the measured training step, never the launch."""

from __future__ import annotations

import pytest
from replay import ReplayClock

from repro.commands.driver import Driver
from repro.datafile import to_json
from repro.record import Trial


def test_trial(trial: tuple[Trial, int], driver: Driver, clock: ReplayClock, request: pytest.FixtureRequest) -> None:
    measured, number = trial
    earlier = driver.run.finished(measured, number)
    record = earlier or driver.run.record(measured, number=number)
    driver.progress.tell(measured, record, earlier is not None, number)
    if record is None:
        pytest.skip("the time budget does not suffice; the same command with a larger --budget goes on here")
    if record.status == "crashed" and record.origin == "measured":
        pytest.fail(f"{record.id} crashed: {record.reason}; {record.remedy} ({record.log})", pytrace=False)
    if record.status != "ok":
        pytest.skip(f"{record.status}: {record.reason}; {record.remedy}")
    benchmark = request.getfixturevalue("benchmark")
    benchmark.extra_info.update(to_json(record))
    clock.load(record.derived.step_rounds)
    benchmark.pedantic(clock.step, rounds=len(record.derived.step_rounds))
