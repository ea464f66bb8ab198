"""All programs of the zoo by name."""

from __future__ import annotations

from collections.abc import Callable

from . import bert, dit, gpt2, llama, lstm, mamba, mobilenet, moe, resnet, t5, unet, vit, yolo
from .program import Program, Size

PROGRAMS: dict[str, Callable[[Size], Program]] = {}
for family in (resnet, mobilenet, yolo, vit, unet, dit, bert, gpt2, t5, llama, moe, mamba, lstm):
    PROGRAMS |= family.PROGRAMS

# Programs whose small size is that of another one.
SAME_AT_SMALL_SIZE = ("bert_large", "gpt2_medium", "gpt2_large", "llama3_8b_prefill", "llama3_8b_decode",
                      "llama2_7b_decode_8", "llama3_8b_decode_8", "mistral_7b_decode_8")

__all__ = ["PROGRAMS", "SAME_AT_SMALL_SIZE", "Program", "Size"]
