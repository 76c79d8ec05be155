"""A server for trials that answers as a test's script says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ForkServer

Script = Callable[[Job], list[RankOutcome] | Job | None]


@dataclass
class ScriptedServer:
    """One whose `script` makes the outcomes of a job, or another job for the fork server behind it; with None that runs
    the job as it is. `jobs` are those it was given. It removes `removable` files of build caches, `cleaned` times."""

    script: Script = lambda job: None
    server: ForkServer | None = None
    broken: dict[str, str] = field(default_factory=dict)
    lost: str = ""
    removable: int = 0
    jobs: list[Job] = field(default_factory=list)
    cleaned: int = 0

    def start(self) -> None:
        if self.server is not None:
            self.server.start()
            self.broken = self.server.broken

    def call(self, job: Job) -> list[RankOutcome]:
        self.jobs.append(job)
        answer = self.script(job)
        if isinstance(answer, list):
            return answer
        assert self.server is not None
        return self.server.call(job if answer is None else answer)

    def clean_build_caches(self) -> int:
        self.cleaned += 1
        return self.removable
