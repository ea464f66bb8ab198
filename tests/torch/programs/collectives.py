"""Every collective of xm from eight replicas, beside numbers worked out by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

N = 8


class Cases:
    """One function a case; each replica calls all in order."""

    def __init__(self) -> None:
        self.device, self.rank = xm.xla_device(), xr.global_ordinal()

    def of_rank(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full((4,), self.rank, dtype=dtype).to(self.device)

    def equal(self, found: torch.Tensor, expected: object) -> None:
        wanted = torch.as_tensor(expected).double()
        if not torch.equal(found.cpu().double(), wanted):
            raise AssertionError(f"{found.cpu().tolist()}, expected {wanted.tolist()}")

    def all_reduce_sum(self) -> None:
        self.equal(xm.all_reduce(xm.REDUCE_SUM, self.of_rank()), [N * (N - 1) / 2] * 4)

    def all_reduce_in_place(self) -> None:
        a, b = self.of_rank(), torch.ones(3, 5, device=self.device)
        xm.all_reduce(xm.REDUCE_SUM, [a, b], scale=1 / N)
        torch_xla.sync()
        self.equal(a, [(N - 1) / 2] * 4)
        self.equal(b, torch.ones(3, 5))

    def all_reduce_max_and_min(self) -> None:
        self.equal(xm.all_reduce(xm.REDUCE_MAX, self.of_rank()), [N - 1] * 4)
        self.equal(xm.all_reduce(xm.REDUCE_MIN, self.of_rank()), [0] * 4)

    def all_reduce_groups(self) -> None:
        groups = [list(range(N // 2)), list(range(N // 2, N))]
        self.equal(xm.all_reduce(xm.REDUCE_SUM, self.of_rank(), groups=groups), [sum(groups[self.rank >= N // 2])] * 4)

    def all_reduce_bf16(self) -> None:
        self.equal(xm.all_reduce(xm.REDUCE_SUM, self.of_rank(torch.bfloat16)), [N * (N - 1) / 2] * 4)

    def all_reduce_integers(self) -> None:
        self.equal(xm.all_reduce(xm.REDUCE_SUM, self.of_rank(torch.int32)), [N * (N - 1) / 2] * 4)

    def all_gather(self) -> None:
        self.equal(xm.all_gather(self.of_rank(), dim=0), torch.arange(N).repeat_interleave(4))
        rows = xm.all_gather(self.of_rank().reshape(2, 2), dim=1)
        self.equal(rows, torch.arange(N).repeat_interleave(2).repeat(2, 1))

    def reduce_scatter(self) -> None:
        x = (torch.arange(2 * N).float() + self.rank).to(self.device)
        whole = torch.arange(2 * N) * N + N * (N - 1) / 2
        self.equal(xm.reduce_scatter(xm.REDUCE_SUM, x, 1.0, 0, N), whole[2 * self.rank:2 * self.rank + 2])

    def all_to_all(self) -> None:
        x = (torch.arange(N).float() + 10 * self.rank).to(self.device)
        self.equal(xm.all_to_all(x, 0, 0, N), 10 * torch.arange(N) + self.rank)

    def collective_permute(self) -> None:
        pairs = [[rank, (rank + 1) % N] for rank in range(N)]
        self.equal(xm.collective_permute(self.of_rank(), pairs), [(self.rank - 1) % N] * 4)

    def broadcast(self) -> None:
        a = self.of_rank()
        xm.collective_broadcast([a], root_ordinal=2)
        torch_xla.sync()
        self.equal(a, [2] * 4)

    def rendezvous(self) -> None:
        if xm.rendezvous("place", b"%d" % self.rank) != [b"%d" % rank for rank in range(N)]:
            raise AssertionError("payloads of the rendezvous differ")

    def mesh_reduce(self) -> None:
        if xm.mesh_reduce("sum", self.rank, sum) != N * (N - 1) // 2:
            raise AssertionError("mesh_reduce")


CASES: list[Callable[[Cases], None]] = [value for name, value in vars(Cases).items()
                                        if callable(value) and name not in ("__init__", "of_rank", "equal")]


def replica(index: int) -> None:
    cases, failures = Cases(), []
    for case in CASES:
        try:
            case(cases)
            result = "ok"
        except Exception as error:  # the others go on with the next case as well
            result = f"FAILED {type(error).__name__}: {str(error)[:300]}"
            failures.append(case.__name__)
        if index == 0 or result != "ok":
            print(f"rank {index} {case.__name__:24} {result}", flush=True)
    if failures:
        raise SystemExit(f"rank {index}: {', '.join(failures)}")


if __name__ == "__main__":
    torch_xla.launch(replica)
    print(f"{len(CASES)} passed, 0 failed")
    sys.exit(0)
