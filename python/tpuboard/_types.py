"""Element types of the board as NumPy's."""

from __future__ import annotations

import numpy as np

# In the order of tpu_dtype.
_NAMES = ("float32", "bfloat16", "int32", "uint32", "int8", "uint8", "bool", "int16", "uint16", "int64", "uint64",
          "complex64", "float64")
_BFLOAT16 = _NAMES.index("bfloat16")


def numpy_dtype(index: int) -> np.dtype:
    """NumPy's type; bfloat16 needs the package ml_dtypes."""
    if index != _BFLOAT16:
        return np.dtype(_NAMES[index])
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError("bfloat16 in NumPy needs the package ml_dtypes: pip install ml_dtypes") from None
    bfloat16: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def board_dtype(dtype: np.dtype) -> int:
    """Index of the board's type; TypeError for one that it lacks."""
    if dtype.name in _NAMES and dtype.isnative:
        return _NAMES.index(dtype.name)
    hint = {"f": "; use float32 or bfloat16", "c": "; use complex64"}.get(dtype.kind, "")
    raise TypeError(f"the board has no type {dtype}{hint} (it has {', '.join(_NAMES)})")
