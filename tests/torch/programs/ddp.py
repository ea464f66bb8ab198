"""torch.distributed with the backend xla, one process for each core: collectives, DistributedDataParallel and
XlaFullyShardedDataParallel.

Usage: ddp.py [--spawn METHOD | --processes N]
  --processes  torchrun starts them (default 8); they are as many as the board has cores
  --spawn      xmp.spawn(nprocs=8) starts them
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend  # the backend xla and init_method="xla://"
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch import nn
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel

PART, STEPS = 4, 3
OLD = torch_xla.__version__.startswith("2.5")


def batch(size: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of all replicas."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(size * PART, 16, generator=generator)
    return x, x[:, :3].argmax(1)


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))


def steps(model: nn.Module, device: torch.device | str, rows: slice, size: int) -> list[torch.Tensor]:
    """Weights after some steps of SGD over these rows of each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for step in range(STEPS):
        x, y = (part[rows].to(device) for part in batch(size, step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        torch_xla.sync()
    return [weight.detach().cpu() for weight in model.parameters()]


def check_collectives(device: torch.device, rank: int, size: int) -> None:
    def of_rank() -> torch.Tensor:
        return torch.full((4,), float(rank)).to(device)

    total, ranks = size * (size - 1) / 2, torch.arange(float(size))
    x = of_rank()
    dist.all_reduce(x)
    assert x.cpu().tolist() == [total] * 4, x
    x = of_rank()
    dist.broadcast(x, src=1)
    assert x.cpu().tolist() == [1.0] * 4, x
    if not OLD:  # an IndexError of its own there
        rows = torch.empty(4 * size).to(device)
        dist.all_gather_into_tensor(rows, of_rank())
        assert torch.equal(rows.cpu(), ranks.repeat_interleave(4)), rows
    parts = [torch.empty(4).to(device) for _ in range(size)]
    dist.all_gather(parts, of_rank())
    assert torch.equal(torch.stack(parts).cpu(), ranks[:, None].expand(size, 4)), parts
    part = torch.empty(2).to(device)
    dist.reduce_scatter_tensor(part, (torch.arange(2.0 * size) + rank).to(device))
    assert part.cpu().tolist() == [size * 2 * rank + total, size * (2 * rank + 1) + total], part
    gather = torch.compile(lambda x: xm.all_gather(x, dim=0), backend="openxla", fullgraph=True)
    assert torch.equal(gather(of_rank()).cpu(), ranks.repeat_interleave(4))
    dist.barrier()
    half = dist.new_group(list(range(size // 2)))
    if rank < size // 2:
        assert dist.get_world_size(half) == size // 2


def check_training(device: torch.device, rank: int, size: int) -> None:
    expected = steps(network(0), "cpu", slice(None), size)
    own = slice(rank * PART, (rank + 1) * PART)
    # Weights of the first replica are everybody's.
    model = network(rank).to(device)
    xm.broadcast_master_param(model)
    for a, b in zip(network(0).parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=0, atol=0)
    if not OLD:  # the gradients of its DDP are not those that were reduced
        found = steps(nn.parallel.DistributedDataParallel(model), device, own, size)
        for a, b in zip(expected, found, strict=True):
            torch.testing.assert_close(b, a, rtol=0.03, atol=0.01)
    sharded = XlaFullyShardedDataParallel(network(0).to(device))
    steps(sharded, device, own, size)
    with torch.no_grad():
        x = batch(size, 9)[0]
        whole = network(0)
        for weight, value in zip(whole.parameters(), expected, strict=True):
            weight.copy_(value)
        torch.testing.assert_close(sharded(x.to(device)).cpu(), whole(x), rtol=0.05, atol=0.05)


def replica(index: int) -> None:
    dist.init_process_group("xla", init_method="xla://")
    rank, size, device = dist.get_rank(), dist.get_world_size(), torch_xla.device()
    assert (rank, size) == (xr.global_ordinal(), xr.world_size()) and rank == index, (rank, size, index)
    check_collectives(device, rank, size)
    check_training(device, rank, size)
    dist.destroy_process_group()
    print(f"replica {rank} of {size}: passed", flush=True)


def main() -> int:
    """Starts the processes, or is one of torchrun."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--spawn", choices=("spawn", "fork"))
    options = parser.parse_args()
    if dist.is_torchelastic_launched():
        # The package has given the process its core by now: xla_device() before init_process_group is right as well.
        assert len(xm.get_xla_supported_devices()) == 1
        replica(int(os.environ["LOCAL_RANK"]))
        return 0
    if options.spawn:
        xmp.spawn(replica, nprocs=8, start_method=options.spawn)
        return 0
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               f"--nproc-per-node={options.processes}", __file__]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="\n")
    passed = done.stdout.count(f"of {options.processes}: passed")
    return 0 if done.returncode == 0 and passed == options.processes else 1


if __name__ == "__main__":
    sys.exit(main())
