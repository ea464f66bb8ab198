"""Philox4x32-10 and the draws of docs/training.md, written from that page: permutations and he_normal values."""

from __future__ import annotations

MASK = 0xFFFFFFFF
INIT, SPLIT, EPOCH = 1, 2, 3


def philox(counter: tuple[int, int, int, int], seed: int) -> tuple[int, int, int, int]:
    """One block of four 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & MASK, seed >> 32 & MASK
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def word64(seed: int, purpose: int, stream: int, index: int) -> int:
    """Draw number `index`: pair index mod 2 of block index / 2, low word first."""
    block = index // 2
    words = philox((block & MASK, block >> 32, stream, purpose), seed)
    pair = words[:2] if index % 2 == 0 else words[2:]
    return pair[1] << 32 | pair[0]


def permutation(seed: int, purpose: int, stream: int, count: int) -> list[int]:
    """Fisher-Yates from the end; draw j decides position count - 1 - j."""
    order = list(range(count))
    for j in range(count - 1):
        last = count - 1 - j
        pick = word64(seed, purpose, stream, j) * (last + 1) >> 64
        order[last], order[pick] = order[pick], order[last]
    return order
