"""How far a result lies from its reference: what every comparison with JAX uses.

NaN and infinities belong to where the reference has them, with their sign, and nowhere else: all else is an infinite
distance, which no bound allows and `max` does not lose (it drops NaN that is not the first value).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

PEAK = 4  # times the bound of relative L2: what relative_peak() may be; at most 3 times relative L2 is measured


def _relative(ours: np.ndarray, theirs: np.ndarray, norm_of: Callable[[np.ndarray], float]) -> float:
    """norm_of(ours - theirs) / norm_of(theirs) in f64 over the finite elements; without the division when theirs is
    zero."""
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    finite = np.isfinite(b)
    if a.shape != b.shape or not np.isfinite(a[finite]).all() or not np.array_equal(a[~finite], b[~finite], True):
        return math.inf
    norm, gap = float(norm_of(b[finite])), float(norm_of(a[finite] - b[finite]))
    return gap / norm if norm > 0 else gap


def relative_l2(ours: np.ndarray, theirs: np.ndarray) -> float:
    """|ours - theirs| / |theirs|, root sums of squares."""
    return _relative(ours, theirs, np.linalg.norm)


def relative_peak(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest distance of an element by the largest element."""
    return _relative(ours, theirs, lambda v: np.abs(v).max(initial=0))


def ulp_distance(ours: np.ndarray, theirs: np.ndarray) -> int:
    """Largest distance in units in the last place. NaN equals NaN; subnormals count as zero of their sign, and the two
    zeros are neighbours."""
    if ours.size == 0:
        return 0
    a, b = ours.astype(np.float32), theirs.astype(np.float32)
    tiny = np.finfo(np.float32).tiny
    a, b = (np.where(np.abs(v) < tiny, np.copysign(np.float32(0), v), v) for v in (a, b))
    both_nan = np.isnan(a) & np.isnan(b)
    bits = [np.ascontiguousarray(v).view(np.int32).astype(np.int64) for v in (a, b)]
    keys = [np.where(v < 0, -(2**31) - 1 - v, v) for v in bits]
    return int(np.where(both_nan, 0, np.abs(keys[0] - keys[1])).max())


def difference(ours: np.ndarray, theirs: np.ndarray, ulp: int = 0, l2: float | None = None,
               before: np.ndarray | None = None) -> str | None:
    """Text of a difference, or None. `before`: `l2` is of the changes from there, which are no finer than the rounding
    of the results: 4 units in the last place of the largest."""
    if ours.dtype.kind == "V" and theirs.dtype.name == "bfloat16":
        ours = ours.view(theirs.dtype)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype}{ours.shape}, expected {theirs.dtype}{theirs.shape}"
    if theirs.dtype.kind == "c":  # both parts of each element
        ours, theirs = (np.ascontiguousarray(v)[..., None].view(v.real.dtype) for v in (ours, theirs))
    if theirs.dtype.kind != "f" and theirs.dtype.name != "bfloat16":
        return None if np.array_equal(ours, theirs) else f"{int((ours != theirs).sum())} elements differ"
    if l2 is None:
        gap = ulp_distance(ours, theirs)
        return None if gap <= ulp else f"{gap} ulp, allowed {ulp}"
    if before is not None:
        rounding = 4 * float(np.spacing(np.abs(theirs).max(initial=0)))
        ours, theirs = (v.astype(np.float64) - before for v in (ours, theirs))
        if np.abs(ours - theirs).max(initial=0) <= rounding:
            return None
    gap = relative_l2(ours, theirs)
    if math.isinf(gap):
        return "NaN or infinity at other places"
    if not gap <= l2:
        return f"relative L2 {gap:.3g}, allowed {l2:.3g}"
    peak = relative_peak(ours, theirs)  # one wrong element among a million is no distance in L2
    return None if peak <= PEAK * l2 else f"largest error {peak:.3g} of the largest element, allowed {PEAK * l2:.3g}"
