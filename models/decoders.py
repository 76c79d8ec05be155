"""Decoders as their dimensions describe them: the families whose costs are computed without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from repro.console import UserError


@dataclass(frozen=True)
class Dimensions:
    """The sizes of a decoder: `heads` of `head` numbers, `keys` of them with keys and values of their own."""

    layers: int
    width: int
    heads: int
    keys: int
    feedforward: int
    vocabulary: int
    head: int
    sequence: int


@dataclass(frozen=True)
class Family:
    """Decoders of one class of transformers: the popular model that they are `like`, whether their output shares the
    weights of the embedding, and the keys of a configuration that have the dimensions."""

    like: str
    tied: tuple[bool, ...]
    keys: dict[str, str]

    def config(self, asked: Dimensions) -> dict[str, int]:
        """Return the keys of a configuration with these dimensions."""
        return {key: getattr(asked, name) for name, key in self.keys.items()}


_LLAMA = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "keys": "num_key_value_heads",
    "feedforward": "intermediate_size",
    "vocabulary": "vocab_size",
    "head": "head_dim",
}
_GPT2 = {
    "layers": "n_layer",
    "width": "n_embd",
    "heads": "n_head",
    "feedforward": "n_inner",
    "vocabulary": "vocab_size",
    "sequence": "n_positions",
}
FAMILIES = {
    "llama": Family("llama-3.2-1b", (True, False), _LLAMA),
    "qwen3": Family("qwen3-0.6b", (True,), _LLAMA),
    "olmo2": Family("olmo-2-1b", (False,), {name: key for name, key in _LLAMA.items() if name != "head"}),
    "gpt2": Family("gpt2", (True,), _GPT2),
}


# The dimensions that a user names, in order; `head` may be left out.
NAMES = {
    "layers": "layers",
    "width": "width",
    "heads": "heads",
    "kv": "keys",
    "feedforward": "feedforward",
    "vocabulary": "vocabulary",
    "head": "head",
}


def config_of(given: Mapping[str, int], sequence: int, text: str) -> dict[str, Any]:
    """Return the configuration of a decoder of Llama's family with these dimensions. Raise UserError where one is
    missing or unknown, or where they do not fit together."""
    lacking = [name for name in NAMES if name not in given and name != "head"]
    if lacking or given.keys() - NAMES.keys():
        wrong = f"{', '.join(lacking)} missing" if lacking else f"{', '.join(given.keys() - NAMES.keys())} unknown"
        raise UserError(f"{text}: {wrong}: a decoder is decoder:{','.join(f'{name}=N' for name in NAMES)}")
    if given["width"] % given["heads"] or given["heads"] % given["kv"]:
        raise UserError(f"{text}: expected width a multiple of heads, and heads of kv")
    head = given.get("head", given["width"] // given["heads"])
    names = {NAMES[name]: number for name, number in given.items()}
    asked = Dimensions(**names | {"head": head, "sequence": sequence})
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "tie_word_embeddings": True,
        "max_position_embeddings": sequence,
        **FAMILIES["llama"].config(asked),
    }


def recognised(config: Mapping[str, Any], sequence: int) -> tuple[str, bool, Dimensions] | None:
    """Return the family of a configuration of transformers, whether its output shares the embedding's weights, and its
    dimensions; None where no family has it."""
    family = FAMILIES.get(config.get("model_type", ""))
    if family is None or any(config.get(key) for key in _OTHER) or config.get("hidden_act", "silu") != "silu":
        return None
    numbers = {name: config.get(key) for name, key in family.keys.items()}
    width, heads = numbers["width"], numbers["heads"]
    if not isinstance(width, int) or not isinstance(heads, int) or heads < 1:
        return None
    otherwise = {"keys": heads, "head": width // heads, "feedforward": 4 * width}
    numbers |= {name: numbers.get(name) or usual for name, usual in otherwise.items()} | {"sequence": sequence}
    counts = {name: each for name, each in numbers.items() if type(each) is int and 0 < each < 10**9}
    tied = config.get("tie_word_embeddings", config["model_type"] == "gpt2")
    if counts.keys() != numbers.keys() or tied not in family.tied:
        return None
    return config["model_type"], tied, Dimensions(**counts)


_OTHER = ("attention_bias", "mlp_bias", "use_sliding_window", "num_local_experts")  # no sample had these
