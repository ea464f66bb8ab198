"""Replicas by torch_xla.launch and xmp.spawn: training, exchange of values, numbers of processes, errors.

Usage: spawn.py [--method spawn|fork] [NAME OF A TEST ...]
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch import nn
from torch_xla._internal import pjrt

CORES, PART, STEPS = 8, 4, 3
METHOD = "fork" if "fork" in sys.argv else "spawn"
TOKENS: set[str] = set()  # devices whose entry in PyTorch/XLA's table of tokens is there
set_token = torch_xla._XLAC._set_all_reduce_token


def note_token(device: str, token: object) -> None:
    TOKENS.add(str(device))
    set_token(device, token)


torch_xla._XLAC._set_all_reduce_token = note_token


def data() -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(CORES * PART * STEPS, 16, generator=generator)
    return torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))


def network() -> nn.Module:
    generator = torch.Generator().manual_seed(4)  # threads have the global one in common
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.rand(weight.shape, generator=generator) / 2 - 0.25)
    return model


def train(index: int, folder: str, workers: int = 0) -> None:
    device = xm.xla_device()
    assert index == xm.get_ordinal() == xr.global_ordinal() and xm.xrt_world_size() == CORES, index
    sampler = torch.utils.data.distributed.DistributedSampler(data(), CORES, index, shuffle=False)
    batches = torch.utils.data.DataLoader(data(), PART, sampler=sampler, num_workers=workers)
    loader = pl.ParallelLoader(batches, [device])
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    losses = []
    for x, y in loader.per_device_loader(device):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
        losses.append(loss)
    mean = xm.mesh_reduce("loss", losses[-1].item(), lambda values: sum(values) / len(values))
    xm.rendezvous("trained")
    xm.master_print(f"mean of the last losses {mean:.4f}")
    xm.save(model.state_dict(), Path(folder) / "model.pt")
    torch.save([weight.cpu() for weight in model.state_dict().values()] + [torch.tensor(mean)],
               Path(folder) / f"{index}.pt")


def expected() -> tuple[list[np.ndarray], float]:
    """As one device computes it from all parts at once. In a child: autograd counts devices at the first backward, and
    a process forked from here would have that number."""
    model, (x, y) = network(), data().tensors
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    loss = torch.tensor(0.0)
    for step in range(STEPS):
        rows = slice(step * CORES * PART, (step + 1) * CORES * PART)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
    return [weight.numpy() for weight in model.state_dict().values()], loss.item()


def values(index: int, folder: str) -> None:
    assert xm.rendezvous("bytes", f"of {index}".encode()) == [f"of {rank}".encode() for rank in range(CORES)]
    assert xm.mesh_reduce("sum", index, sum) == sum(range(CORES))
    assert xm.is_master_ordinal() == (index == 0)
    xm.do_on_ordinals(lambda: Path(folder, "three").touch(), ordinals=(3,))
    Path(folder, str(index)).touch()


def write(index: int, folder: str) -> None:
    Path(folder, f"{index} of {xr.world_size()}").write_text(os.environ.get("TPUBOARD_PROCESS_DIR", ""), "utf-8")


def raise_in_one(index: int) -> None:
    """The others are in a collective then, which waits for that one."""
    device = xm.xla_device()
    xm.rendezvous("opened")
    if index == 5:
        raise ValueError("replica 5 has no data")
    xm.all_reduce(xm.REDUCE_SUM, torch.ones(3, device=device)).cpu()


def one_is_killed(index: int) -> None:
    device = xm.xla_device()
    xm.rendezvous("opened")
    if index == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    xm.all_reduce(xm.REDUCE_SUM, torch.ones(3, device=device)).cpu()


class NoPickleError(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def raise_without_pickle(index: int) -> None:
    raise NoPickleError("oil", "water")


def tokens_are_there(index: int) -> None:
    """The table has no lock: no entry may be inserted once threads have collectives."""
    assert len(TOKENS) == CORES, TOKENS


SHARED = nn.Linear(3, 1)


def use_a_model_of_the_parent(index: int) -> None:
    """As notebooks of the TPU's first years do: in threads, `.to()` would move the same weights eight times."""
    assert xm.xrt_world_size() == CORES and index == xm.get_ordinal()
    device = xm.xla_device()
    model = SHARED.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 3).to(device)).square().mean().backward()
        xm.optimizer_step(optimizer)
    assert all(weight.isfinite().all() for weight in model.cpu().parameters())


def add_of_two_devices(index: int) -> None:
    here = torch.tensor([1.0, 2.0]).to(xm.xla_device())
    there = torch.tensor([1.0, 2.0]).to(xm.xla_device(n=1 - min(index, 1)))
    (here + there).cpu()


def rank_in_the_program(index: int) -> None:
    """The rank becomes a constant, a padding and the start of a slice: each replica has a program of its own."""
    device = xm.xla_device()
    rows = xm.all_gather(torch.full((4,), float(index)).to(device), dim=0, pin_layout=True)
    assert torch.equal(rows.cpu(), torch.arange(float(CORES)).repeat_interleave(4)), rows
    total = xm.all_reduce(xm.REDUCE_SUM, torch.ones(3, device=device) * index)
    assert total.cpu().tolist() == [sum(range(CORES))] * 3, total


def other_programs(index: int) -> None:
    x = torch.ones(4).to(xm.xla_device())
    (xm.all_reduce(xm.REDUCE_SUM, x) if index == 0 else xm.all_reduce(xm.REDUCE_MAX, x.exp())).cpu()


def one_stays_away(index: int) -> None:
    x = torch.ones(4).to(xm.xla_device())
    if index != 3:
        xm.all_reduce(xm.REDUCE_SUM, x).cpu()


def train_in_a_process(index: int, folder: str) -> None:
    train(index, folder, workers=1)
    use_a_model_of_the_parent(index)


class Spawn(unittest.TestCase):
    """The parent opens no device."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def files(self) -> set[str]:
        return {path.name for path in Path(self.folder).iterdir()}

    def fails(self, function: Callable[[int], None], pattern: str) -> None:
        """The pattern is on standard error: PyTorch/XLA 2.5 ends the process when a launch fails."""
        kept = os.dup(2)
        with tempfile.TemporaryFile() as output:
            try:
                os.dup2(output.fileno(), 2)
                with self.assertRaises(RuntimeError):
                    xmp.spawn(function, start_method=METHOD)
            finally:
                os.dup2(kept, 2)
                os.close(kept)
            output.seek(0)
            self.assertRegex(output.read().decode(errors="replace"), pattern)

    def test_training_in_processes(self) -> None:
        xmp.spawn(train_in_a_process, args=(self.folder,), nprocs=CORES, start_method=METHOD)
        self.check_training()

    def test_training_in_threads(self) -> None:
        xmp.spawn(train, args=(self.folder,), start_method=METHOD)
        self.check_training()

    def check_training(self) -> None:
        with multiprocessing.get_context("fork").Pool(1) as pool:
            weights, loss = pool.apply(expected)
        for rank in range(CORES):
            *found, mean = torch.load(Path(self.folder, f"{rank}.pt"))
            self.assertAlmostEqual(mean.item() / loss, 1, delta=0.02)
            for a, b in zip(weights, found, strict=True):
                torch.testing.assert_close(torch.from_numpy(a), b, rtol=0.03, atol=0.01)
        first, last = (torch.load(Path(self.folder, f"{rank}.pt"))[0] for rank in (0, CORES - 1))
        self.assertTrue(torch.equal(first, last))
        saved = torch.load(Path(self.folder, "model.pt"))
        self.assertTrue(torch.equal(saved["0.weight"], first))

    def test_values(self) -> None:
        torch_xla.launch(values, args=(self.folder,), start_method=METHOD)
        self.assertEqual(self.files(), {"three", *map(str, range(CORES))})

    def test_a_second_spawn(self) -> None:
        """Its processes meet in another folder: the server of the first call may be there for a moment."""
        folders = set()
        for _ in range(2):
            xmp.spawn(write, args=(self.folder,), start_method=METHOD)
            self.assertEqual(self.files(), {f"{rank} of {CORES}" for rank in range(CORES)})
            for path in Path(self.folder).iterdir():
                folders.add(path.read_text(encoding="utf-8"))
                path.unlink()
        self.assertEqual(len(folders), 2, folders)
        self.assertFalse(any(Path(folder).exists() for folder in folders), folders)
        self.assertNotIn("TPUBOARD_PROCESS_DIR", os.environ)

    def test_numbers_of_processes(self) -> None:
        for number in (0, 2, 7, 9):
            with self.subTest(nprocs=number), self.assertRaisesRegex(
                    ValueError, f"The number of devices must be either 1 or {CORES}, got {number} instead"):
                xmp.spawn(write, args=(self.folder,), nprocs=number, start_method=METHOD)
        self.assertEqual(self.files(), set())

    def test_a_replica_that_raises(self) -> None:
        for number in (None, CORES):
            begin = time.monotonic()
            with self.subTest(nprocs=number), self.assertRaisesRegex(ValueError, "replica 5 has no data") as raised:
                xmp.spawn(raise_in_one, nprocs=number, start_method=METHOD)
            self.assertRegex(str(raised.exception.__cause__), "(?s)replica 5 failed.*Traceback.*in raise_in_one")
            self.assertLess(time.monotonic() - begin, 100)  # TPUBOARD_REPLICA_LIMIT is 600 s

    def test_a_process_that_is_killed(self) -> None:
        begin = time.monotonic()
        with self.assertRaisesRegex(RuntimeError, "process 5 .* has ended|A process .* was terminated abruptly"):
            xmp.spawn(one_is_killed, nprocs=CORES, start_method=METHOD)
        self.assertLess(time.monotonic() - begin, 100)

    def test_an_error_that_cannot_be_pickled(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "NoPickleError: oil and water"):
            xmp.spawn(raise_without_pickle, start_method=METHOD)

    def test_tokens_before_threads(self) -> None:
        xmp.spawn(tokens_are_there, start_method=METHOD)
        child = multiprocessing.get_context("fork").Process(target=pjrt.spawn_threads, args=(tokens_are_there,))
        child.start()
        child.join()
        self.assertEqual(child.exitcode, 0)

    def test_programs_that_differ_by_rank(self) -> None:
        xmp.spawn(rank_in_the_program, start_method=METHOD)

    def test_programs_that_differ(self) -> None:
        self.fails(other_programs, "the programs of the replicas differ.*`exponential` at the same place")

    def test_a_replica_that_stays_away(self) -> None:
        os.environ["TPUBOARD_REPLICA_LIMIT"] = "10"
        self.addCleanup(os.environ.pop, "TPUBOARD_REPLICA_LIMIT")
        self.fails(one_stays_away, r": replica 3 \(TPU:3\) did not launch")

    def test_arrays_of_two_devices(self) -> None:
        """PyTorch/XLA finds it out when it executes, and says where both are."""
        self.fails(add_of_two_devices, "Check failed: pjrt_device == pjrt_data->buffer->device")

    def test_xyz_one_process_then_too_late(self) -> None:
        """Last: it opens the device in this process."""
        xmp.spawn(write, args=(self.folder,), nprocs=1)
        self.assertEqual(self.files(), {"0 of 1"})
        with self.assertRaisesRegex(RuntimeError, "Do not use the XLA device before calling xmp.spawn"):
            xmp.spawn(write, args=(self.folder,), start_method=METHOD)


if __name__ == "__main__":
    arguments = copy.copy(sys.argv)
    if "--method" in arguments:
        at = arguments.index("--method")
        del arguments[at:at + 2]
    unittest.main(argv=arguments)
