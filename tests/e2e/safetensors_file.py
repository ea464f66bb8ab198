"""Reads safetensors files as their format says, with nothing of the project: the tests' own eye on what is written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

# bf16 has no name in NumPy: its bits are enough to compare.
DTYPES = {"BOOL": "?", "U8": "<u1", "I8": "<i1", "U16": "<u2", "I16": "<i2", "BF16": "<u2", "U32": "<u4", "I32": "<i4",
          "F32": "<f4", "U64": "<u8", "I64": "<i8"}


def load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors by name, and the metadata."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    body = data[8 + length:]
    tensors = {}
    ends = [0]
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        assert begin == ends[-1], (name, begin, ends[-1])
        ends.append(end)
        dtype = np.dtype(DTYPES[entry["dtype"]])
        assert (8 + length + begin) % dtype.itemsize == 0, f"{name} is not aligned"
        tensors[name] = np.frombuffer(body[begin:end], dtype).reshape(entry["shape"])
    assert ends[-1] == len(body), (ends[-1], len(body))
    return tensors, metadata
