"""Checkpoints of a training: each is whole or absent, and the newest whole one is loaded."""

from __future__ import annotations

import os
import re
import shutil
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .. import datafile, files
from ..console import DISK_FULL, UserError, one_line, say
from ..formats import as_json
from ..measure.engine import Engine
from ..measure.engine.fsdp import FullyShardedEngine
from ..measure.engine.zero import ZeroEngine
from ..measure.rank import Rank

KEPT = 2  # the newest ones
_MANIFEST = "files.json"
_NAME = re.compile("step-[0-9]{9}")
_READ_AT_ONCE = 2**24  # bytes


@dataclass(frozen=True)
class _Manifest:
    """The ranks that wrote a checkpoint, and of each of its files the bytes and their CRC-32."""

    ranks: int
    files: dict[str, tuple[int, int]]


@dataclass
class Checkpoints:
    """The checkpoints of an engine in a folder. `last_bytes` and `last_seconds` are those of the one saved last."""

    folder: Path
    engine: Engine
    rank: Rank
    last_bytes: int = 0
    last_seconds: float = 0.0
    _part: Path = field(init=False)

    def __post_init__(self) -> None:
        self._part = self.folder / "part"

    def save(self, step: int) -> bool:
        """Save the training after so many steps, in a folder that gets its name once all of it is on the disk. Return
        False where that fails on a rank, which rank 0 says in a line: what was written is removed."""
        started = time.perf_counter()
        try:
            self._together(self._begin, first_alone=True)
            self._together(lambda: self._write(self._part))
            mine = self._together(self._synced)
            found = {name: each for share in self._gathered(mine) for name, each in share.items()}
            self._together(lambda: self._publish(step, found), first_alone=True)
        except UserError as error:
            if self.rank.index == 0:
                shutil.rmtree(self._part, ignore_errors=True)
                say(f"step {step}: no checkpoint was saved, {error}")
            return False
        self.last_bytes = sum(file.stat().st_size for file in self._named(step).rglob("*"))
        self.last_seconds = time.perf_counter() - started
        return True

    def load(self) -> int:
        """Load the newest whole checkpoint; return the number of steps that it has, 0 where there is none.

        Rank 0 names those that are passed over. Raises UserError where none is whole though there are some, and for
        one of another number of processes."""
        there = sorted((path for path in self.folder.glob("step-*") if _NAME.fullmatch(path.name)), reverse=True)
        for path in there:
            if problem := self._agreed(self._problem(path)):
                if self.rank.index == 0:
                    say(f"{path} is passed over: {problem}")
                continue
            self._read(path)
            return int(path.name.removeprefix("step-"))
        if there:
            raise UserError(f"no checkpoint in {self.folder} is whole: move them away to begin anew")
        return 0

    def _named(self, step: int) -> Path:
        return self.folder / f"step-{step:09}"

    def _together(self, work: Callable[[], Any], first_alone: bool = False) -> Any:
        """Do a part of a save on all ranks, or on rank 0. Raise UserError on all of them where it fails on one."""
        problem, result = "", None
        try:
            result = work() if self.rank.index == 0 or not first_alone else None
        except (OSError, RuntimeError, UserError) as error:  # of a full disk torch says that a position is unexpected
            disk_full = isinstance(error, OSError) and error.errno in DISK_FULL
            disk_full = disk_full or files.free_bytes(files.nearest(self.folder)) < 2**20
            problem = str(error) if isinstance(error, UserError) else one_line(error)
            problem = f"no space left in {self.folder}" if disk_full else problem
        if problem := self._agreed(problem):
            raise UserError(problem)
        return result

    def _begin(self) -> None:
        """Make an empty folder to write to. Raise UserError where the disk has no room for what the last one took."""
        shutil.rmtree(self._part, ignore_errors=True)
        self._part.mkdir(parents=True)
        if (free := files.free_bytes(self.folder)) < self.last_bytes:
            raise UserError(
                f"no space left in {self.folder}: {free:,.0f} bytes are free, the last one took {self.last_bytes:,}"
            )

    def _agreed(self, problem: str) -> str:
        """Return the first problem that a rank has, on all ranks."""
        return next(filter(None, self._gathered(problem)), "")

    def _gathered(self, mine: Any) -> list[Any]:
        """Return what each rank gives, on all ranks."""
        found = [mine] * self.rank.world
        if self.rank.world > 1:
            dist.all_gather_object(found, mine)
        return found

    def _write(self, folder: Path) -> None:
        engine, index = self.engine, self.rank.index
        if isinstance(engine, ZeroEngine):
            engine.engine.save_checkpoint(str(folder), tag="state", save_latest=False)
        elif isinstance(engine, FullyShardedEngine):
            import torch.distributed.checkpoint as dcp

            dcp.save(  # type: ignore[attr-defined]
                _sharded_state(engine), checkpoint_id=folder
            )
        elif index == 0:
            torch.save(_whole_state(engine), folder / "model.pt")
        torch.save(self._rank_state(), folder / f"rank-{index}.pt")

    def _rank_state(self) -> dict[str, Any]:
        """Return what differs from rank to rank: the random numbers of dropout, the loss scale and the schedule."""
        gpu = torch.cuda.get_rng_state() if self.rank.cuda else None
        state: dict[str, Any] = {"random": torch.get_rng_state(), "random_of_gpu": gpu}
        if not isinstance(self.engine, ZeroEngine):
            engine: Any = self.engine
            state |= {"schedule": engine.schedule.state_dict(), "scaler": engine.scaler.state_dict()}
        return state

    def _synced(self) -> dict[str, tuple[int, int]]:
        """Bring this rank's share of the files to the disk; return their bytes and CRC-32."""
        return {name: _checksum(self._part / name, sync=True) for name in self._share(self._part)}

    def _share(self, folder: Path) -> list[str]:
        names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        return names[self.rank.index :: self.rank.world]

    def _publish(self, step: int, found: dict[str, tuple[int, int]]) -> None:
        """Give the written folder its name, and remove the oldest ones."""
        files.replace(self._part / _MANIFEST, as_json({"ranks": self.rank.world, "files": found}) + "\n")
        _checksum(self._part / _MANIFEST, sync=True)
        for folder in (*filter(Path.is_dir, self._part.rglob("*")), self._part):
            _sync_folder(folder)
        whole = self._named(step)
        shutil.rmtree(whole, ignore_errors=True)  # one that was passed over
        self._part.rename(whole)
        _sync_folder(self.folder)
        for old in sorted(path for path in self.folder.glob("step-*") if _NAME.fullmatch(path.name))[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _problem(self, folder: Path) -> str:
        """Return why a checkpoint is not whole, as far as this rank's share of the files shows; empty where it is.

        Raises UserError for a whole one of another number of processes."""
        try:
            manifest = datafile.read(folder / _MANIFEST, _Manifest)
        except datafile.NotAsDeclaredError as error:
            return f"its {_MANIFEST} {error}"
        for name in sorted(manifest.files)[self.rank.index :: self.rank.world]:
            try:
                files.inside(folder, name)
                if _checksum(folder / name) != manifest.files[name]:
                    return f"{name} is not as it was saved"
            except (OSError, UserError) as error:
                return f"{name} cannot be read ({one_line(error)})"
        if manifest.ranks != self.rank.world:
            raise UserError(
                f"{folder} is of {manifest.ranks} processes, these are {self.rank.world}: start {manifest.ranks}"
            )
        return ""

    def _read(self, folder: Path) -> None:
        engine: Any = self.engine
        if isinstance(engine, ZeroEngine):
            engine.engine.load_checkpoint(str(folder), tag="state")
        elif isinstance(engine, FullyShardedEngine):
            import torch.distributed.checkpoint as dcp
            from torch.distributed.checkpoint.state_dict import set_state_dict

            state = _sharded_state(engine)
            dcp.load(  # type: ignore[attr-defined]
                state, checkpoint_id=folder
            )
            set_state_dict(
                engine.module,
                engine.optimizer,
                model_state_dict=state["model"],
                optim_state_dict=state["optimizer"],
            )
        else:
            _load_whole(engine, torch.load(folder / "model.pt", map_location="cpu", weights_only=True))
        state = torch.load(folder / f"rank-{self.rank.index}.pt", weights_only=True)
        torch.set_rng_state(state["random"])
        if self.rank.cuda and state["random_of_gpu"] is not None:
            torch.cuda.set_rng_state(state["random_of_gpu"])
        if not isinstance(engine, ZeroEngine):
            engine.schedule.load_state_dict(state["schedule"])
            engine.scaler.load_state_dict(state["scaler"])


def _sharded_state(engine: FullyShardedEngine) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    return dict(zip(("model", "optimizer"), get_state_dict(engine.module, engine.optimizer), strict=True))


def _whole_state(engine: Any) -> dict[str, Any]:
    """Return weights, the optimizer's state, and the weights that it steps, which are fp32 copies of those in bf16."""
    return {
        "model": engine.module.state_dict(),
        "optimizer": engine.optimizer.state_dict(),
        "stepped": [weight.detach() for group in engine.optimizer.param_groups for weight in group["params"]],
    }


def _load_whole(engine: Any, state: dict[str, Any]) -> None:
    engine.module.load_state_dict(state["model"])
    engine.optimizer.load_state_dict(state["optimizer"])
    stepped = [weight for group in engine.optimizer.param_groups for weight in group["params"]]
    with torch.no_grad():
        for weight, saved in zip(stepped, state["stepped"], strict=True):
            weight.copy_(saved)


def _checksum(path: Path, sync: bool = False) -> tuple[int, int]:
    """Return a file's bytes and their CRC-32; with `sync` once they are on the disk."""
    crc = length = 0
    with path.open("rb") as file:
        if sync:
            files.sync(file)
        while chunk := file.read(_READ_AT_ONCE):
            crc, length = zlib.crc32(chunk, crc), length + len(chunk)
    return length, crc


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError:
        pass  # a file system may not sync folders
    finally:
        os.close(opened)
