"""Test values by counter: element i of stream s is a fixed function of (s, i), the same with every version of NumPy.

Floats have magnitudes of 2^-6 to 2^6 and random signs, so that most sums of eight depend on their order.
"""

from __future__ import annotations

import numpy as np

LOWEST_EXPONENT, EXPONENTS = -6, 13


def words(stream: int, count: int) -> np.ndarray:
    """u64 words: the finaliser of SplitMix64 on a counter."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.uint64(stream) * np.uint64(0xD1B54A32D192ED03)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def floats(stream: int, shape: tuple[int, ...]) -> np.ndarray:
    """f32 of random sign, exponent and mantissa."""
    z = words(stream, int(np.prod(shape)))
    exponents = (z >> np.uint64(32)) % np.uint64(EXPONENTS) + np.uint64(127 + LOWEST_EXPONENT)
    bits = (z >> np.uint64(63) << np.uint64(31)) | (exponents << np.uint64(23)) | (z & np.uint64(0x7FFFFF))
    return bits.astype(np.uint32).view(np.float32).reshape(shape)


def bfloats(stream: int, shape: tuple[int, ...]) -> np.ndarray:
    """Bits of bf16 (u16), cut from f32."""
    return (floats(stream, shape).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def integers(stream: int, shape: tuple[int, ...]) -> np.ndarray:
    """i64 of all sizes."""
    z = words(stream, int(np.prod(shape)))
    return (z.view(np.int64) >> (z & np.uint64(63)).view(np.int64)).reshape(shape)


def uniform(stream: int, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """f32 between low and high: 24 random bits, scaled."""
    unit = (words(stream, int(np.prod(shape))) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return (np.float32(low) + unit * np.float32(high - low)).reshape(shape)
