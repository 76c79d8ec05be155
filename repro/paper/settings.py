"""Settings of a training run, and the paper's search space of settings (section 3.2.1 and Appendix F)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import product, starmap
from typing import Literal, get_args

from ..console import UserError
from ..models.recipe import Precision

Sharding = Literal["none", "zero_1", "zero_2", "zero_3", "fsdp_2", "fsdp_3"]
Attention = Literal["sdpa", "flash"]
SHARDINGS: tuple[Sharding, ...] = get_args(Sharding)
WORDS = {"naive", "free_lunch", "modern", "flash", "checkpointing", "offloading", *SHARDINGS, *get_args(Attention)}
_METHOD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")  # a name in Python


@dataclass(frozen=True)
class Settings:
    """One point of the search space. Free lunch is compile + custom kernels + TF32; naive has no method switched on.

    `attention` is the custom kernel of the attention layers; it has no effect without free lunch. `methods` are a
    user's own, by name, which are added to free lunch and stand for no cell of the paper (repro/measure/method.py), and
    neither do `parts` of modern training (repro/parts.py).
    """

    free_lunch: bool
    checkpointing: bool = False
    sharding: Sharding = "none"
    offloading: bool = False
    attention: Attention = "sdpa"
    methods: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Return `naive`, or the active methods joined by `+`: `free_lunch+checkpointing+zero_3+offloading`. With parts
        free lunch is called modern: `modern+checkpointing+fused_adam`."""
        on = [
            ("modern" if self.parts else "free_lunch") if self.free_lunch else "",
            "flash" if self.free_lunch and self.attention == "flash" else "",
            "checkpointing" if self.checkpointing else "",
            self.sharding if self.sharding != "none" else "",
            "offloading" if self.offloading else "",
            *self.methods,
            *self.parts,
        ]
        return "+".join(filter(None, on)) or "naive"

    @classmethod
    @lru_cache(4096)
    def parse(cls, id: str) -> Settings:
        """Return the settings with this id. Behind free lunch, other names are a user's methods; behind modern, parts.
        Raise UserError, which lists the valid words, for another text."""
        if id.partition("+")[0] == "modern":
            return cls._modern(id)
        words = set() if id == "naive" else set(id.split("+"))
        known = {"free_lunch", "flash", "checkpointing", "offloading", *SHARDINGS[1:]}
        methods = tuple(word for word in id.split("+") if word not in WORDS and _METHOD.fullmatch(word))
        if "free_lunch" in words:
            known |= {*methods}
        shardings = [name for name in SHARDINGS[1:] if name in words]
        alone = ("offloading" in words and not shardings) or ("flash" in words and "free_lunch" not in words)
        if words - known or len(shardings) > 1 or alone:
            raise UserError(
                f"unknown settings {id!r}: naive, or free_lunch (with it flash), checkpointing, one of "
                f"{', '.join(SHARDINGS[1:])} (with it offloading), joined by +"
            )
        return cls(
            free_lunch="free_lunch" in words,
            checkpointing="checkpointing" in words,
            sharding=shardings[0] if shardings else "none",
            offloading="offloading" in words,
            attention="flash" if "flash" in words else "sdpa",
            methods=methods,
        )

    @classmethod
    def _modern(cls, id: str) -> Settings:
        from ..parts import checked

        words = id.split("+")[1:]
        named = [word for word in words if word not in WORDS]
        if not named:
            raise UserError(f"settings {id!r}: modern has no parts; name them, such as modern+fused_adam")
        usual = cls.parse("+".join(["free_lunch", *(word for word in words if word in WORDS)]))
        return replace(usual, parts=checked(named, f"settings {id}"))

    @cached_property
    def base(self) -> Settings:
        """Return the settings with torch's own attention and no methods of one's own or parts: the point in the
        paper's space, for either kernel."""
        return replace(self, attention="sdpa", methods=(), parts=())

    def precision_of(self, usual: Precision) -> Precision:
        """Return the precision of a recipe whose `usual` one this is: bf16 by that part."""
        return "bf16" if "bf16" in self.parts else usual

    @property
    def classes(self) -> dict[str, str]:
        """Return the parts, each with its class, exact or precision."""
        from ..parts import BY_NAME

        return {part: BY_NAME[part].kind for part in self.parts}

    @property
    def saves_memory(self) -> bool:
        """Return whether any memory-saving method is on. Offloading is only used with sharding."""
        return self.checkpointing or self.sharding != "none"

    @cached_property
    def library(self) -> Literal["torch", "deepspeed", "fsdp"]:
        """Return the library that wraps the model: DistributedDataParallel, DeepSpeed's ZeRO or fully_shard."""
        return {"none": "torch", "zero": "deepspeed", "fsdp": "fsdp"}[self.sharding.split("_")[0]]  # type: ignore[return-value]

    @property
    def stage(self) -> int:
        """Return what is sharded: 0 nothing, 1 optimizer states, 2 also gradients, 3 also weights."""
        return 0 if self.sharding == "none" else int(self.sharding[-1])

    def allowed_on(self, count: int) -> bool:
        """Return whether Appendix F tries it: offloading needs sharding; on one GPU, sharding needs offloading."""
        sharded = self.sharding != "none"
        return sharded == self.offloading if count == 1 else sharded or not self.offloading

    @property
    def reduces_every_micro_step(self) -> bool:
        """Return whether every micro-step communicates: stages 2 and 3 cannot accumulate unreduced gradients."""
        return self.stage >= 2


NAIVE = Settings(free_lunch=False)
FREE_LUNCH = Settings(free_lunch=True)


@cache
def search_space(count: int) -> tuple[Settings, ...]:
    """Return Appendix F's settings on `count` GPUs, all with free lunch: 12 on one GPU, 22 on more."""
    every = starmap(Settings, product((True,), (False, True), SHARDINGS, (False, True)))
    return tuple(settings for settings in every if settings.allowed_on(count))
