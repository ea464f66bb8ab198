"""The orders of sums between cores, written from docs/numerics.md ("Orders of sums") and independent of the compiler.

Rows are cores. f32 rows hold f32; bf16 rows hold their bits (u16) and are rounded after every sum; integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

PIECE_BYTES = 512 * 1024  # of a value that travels in whole pieces
SMALL_BYTES = 64 * 1024  # what travels together and is not longer goes whole, not in halves
GRAIN_BYTES = 512  # halved areas are whole grains after the last halving

Order = Callable[[np.ndarray, Sequence[int]], np.ndarray]  # values of all cores, the members of a group -> their sum


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One sum, rounded once. Test values stay far from subnormal numbers, infinities and NaN."""
    if a.dtype != np.uint16:
        with np.errstate(over="ignore"):
            return a + b
    wide = (a.astype(np.uint32) << 16).view(np.float32) + (b.astype(np.uint32) << 16).view(np.float32)
    bits = wide.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def in_pairs(values: np.ndarray, members: Sequence[int]) -> np.ndarray:
    """((0+1)+(2+3))+..; a lone last one goes up unchanged."""
    level = [values[m] for m in members]
    while len(level) > 1:
        level = [add(*level[i : i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    return level[0]


def y_before_x(values: np.ndarray, members: Sequence[int]) -> np.ndarray:
    """((0+1)+(4+5))+((2+3)+(6+7))."""
    a, b, c, d, e, f, g, h = (values[m] for m in members)
    return add(add(add(a, b), add(e, f)), add(add(c, d), add(g, h)))


def one_by_one(values: np.ndarray, members: Sequence[int]) -> np.ndarray:
    """Not an order of the board: what a test must be able to tell from the others."""
    total = values[members[0]]
    for member in members[1:]:
        total = add(total, values[member])
    return total


def _halved(values: np.ndarray, members: Sequence[int], first: Order, second: Order) -> np.ndarray:
    half = values.shape[1] // 2
    return np.concatenate([first(values[:, :half], members), second(values[:, half:], members)])


def _exchanged(values: Sequence[np.ndarray], members: Sequence[int], first: Order, second: Order) -> list[np.ndarray]:
    """Sums of one group: whole pieces of every value, then the rests of all of them behind each other."""
    unit = values[0].itemsize
    piece, grain = PIECE_BYTES // unit, GRAIN_BYTES * len(members) // unit
    whole = [v.shape[1] // piece * piece for v in values]
    sums = [[_halved(v[:, at : at + piece], members, first, second) for at in range(0, end, piece)]
            for v, end in zip(values, whole, strict=True)]
    rests = np.concatenate([v[:, end:] for v, end in zip(values, whole, strict=True)], axis=1)
    used = rests.shape[1]
    if used * unit > SMALL_BYTES:
        count = -(-used * unit // PIECE_BYTES)
        share = -(-used // count)
        size = -(-share // grain) * grain
        area = np.pad(rests, ((0, 0), (0, size * count - used)))
        total = np.concatenate([_halved(area[:, at : at + size], members, first, second)
                                for at in range(0, size * count, size)])[:used]
    else:
        total = first(rests, members)
    for parts, v, end in zip(sums, values, whole, strict=True):
        parts.append(total[: v.shape[1] - end])
        total = total[v.shape[1] - end :]
    return [np.concatenate(parts) for parts in sums]


def all_reduce(values: Sequence[np.ndarray], groups: Sequence[Sequence[int]], first: Order = in_pairs,
               second: Order | None = None) -> list[np.ndarray]:
    """Values that one step sums over groups of cores that are closed under exchange. On all eight cores the second
    halves go y before x."""
    out = [np.empty_like(v) for v in values]
    for members in groups:
        other = second or (y_before_x if len(members) == 8 else first)
        for result, total in zip(out, _exchanged(values, members, first, other), strict=True):
            result[list(members)] = total
    return out


def gathered_sum(values: np.ndarray, groups: Sequence[Sequence[int]], order: Order = in_pairs) -> np.ndarray:
    """All-reduce over other groups, and of 64-bit integers."""
    out = np.empty_like(values)
    for members in groups:
        out[list(members)] = order(values, members)
    return out


def reduce_scatter(values: np.ndarray, groups: Sequence[Sequence[int]], order: Order = in_pairs) -> np.ndarray:
    """Member i of a group keeps part i of the sum."""
    out = np.empty((values.shape[0], values.shape[1] // len(groups[0])), values.dtype)
    for members in groups:
        for member, part in zip(members, np.split(order(values, members), len(members)), strict=True):
            out[member] = part
    return out
