"""Whether free lunch may turn TF32 on: by the GPU, or as the variable REPRO_TF32 says (images set it)."""

from __future__ import annotations

import os

from .errors import UserError
from .gpus import AMPERE

SINCE = AMPERE  # Volta and Turing have no TF32
CHOICES = ("auto", "on", "off")


def allowed(capability: tuple[int, int] | None) -> bool:
    """`capability` is the GPU's, None without one. REPRO_TF32 is `off`; `auto`, the default; or `on`, which images for
    GPUs that all have TF32 set, and which gives it to no GPU that has none."""
    asked = os.environ.get("REPRO_TF32") or "auto"
    if asked not in CHOICES:
        raise UserError(f"REPRO_TF32={asked}: expected one of {', '.join(CHOICES)}")
    return capability is not None and capability >= SINCE and asked != "off"
