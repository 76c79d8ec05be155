"""Whether free lunch may turn TF32 on: by the GPU, or as the variable REPRO_TF32 says (images set it)."""

from __future__ import annotations

import os

from .errors import UserError
from .gpus import AMPERE

SINCE = AMPERE  # Volta and Turing have no TF32
CHOICES = ("auto", "on", "off")


def allowed(capability: tuple[int, int] | None) -> bool:
    """`capability` is the GPU's, None without one. REPRO_TF32 is `auto`, the default: on where the GPU has TF32;
    `off`; or `on`, which is a UserError on a GPU that has none."""
    asked = os.environ.get("REPRO_TF32") or "auto"
    if asked not in CHOICES:
        raise UserError(f"REPRO_TF32={asked}: expected one of {', '.join(CHOICES)}")
    here = capability is not None and capability >= SINCE
    if asked == "on" and capability is not None and not here:
        raise UserError(
            f"REPRO_TF32=on: a GPU of compute capability {capability[0]}.{capability[1]} has no TF32, "
            f"{SINCE[0]}.{SINCE[1]} is the first that has; set it to auto or off"
        )
    return here and asked != "off"
