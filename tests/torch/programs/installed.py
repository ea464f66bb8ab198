"""A program that does not name the board: replicas in processes, one device, figures."""

from __future__ import annotations

import tpuboard

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


def replica(rank: int) -> None:
    total = xm.all_reduce(xm.REDUCE_SUM, torch.ones(2).to(xm.xla_device()))
    assert total.cpu().tolist() == [8.0, 8.0], total


if __name__ == "__main__":
    xmp.spawn(replica, nprocs=8, start_method="fork")
    x = torch.eye(8).to(xm.xla_device()) * 3
    with tpuboard.measure("product") as figures:
        y = x @ x
    assert (y.cpu() == 9 * torch.eye(8)).all() and figures.cores == [0], (y, figures.cores)
    print(tpuboard.library_path(), torch_xla.__version__)
