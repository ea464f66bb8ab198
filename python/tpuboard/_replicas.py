"""The function of `xmp.spawn` in a replica. The first replica that raises ends all: others may wait for it in a launch.

PyTorch/XLA collects results in the order of ranks. Without this, the error of rank 5 would be behind rank 0, which
waits for rank 5 until TPUBOARD_REPLICA_LIMIT.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_first = threading.Lock()


class Replica:
    """`xmp.spawn(fn, nprocs)`: checks nprocs where the devices are known."""

    def __init__(self, function: Callable[..., Any], nprocs: int | None, folder: str) -> None:
        self.function, self.nprocs, self.folder = function, nprocs, folder

    def __call__(self, index: int, *arguments: Any) -> Any:
        import torch_xla.runtime as xr

        devices = xr.global_device_count()
        if self.nprocs not in (None, devices):
            raise ValueError(f"The number of devices must be either 1 or {devices}, got {self.nprocs} instead")
        try:
            return self.function(index, *arguments)
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and error.code in (None, 0):
                raise
            self._end(index, error)

    def _end(self, index: int, error: BaseException) -> None:
        """Ends the process, with the other replicas that are threads of it. Its parent ends the other processes."""
        text = traceback.format_exc()
        print(f"tpuboard: replica {index} failed:\n{text}", file=sys.stderr, flush=True)
        with _first:
            own = Path(self.folder, f"failed-{os.getpid()}")
            own.write_bytes(_pickled(index, error, text))
            with contextlib.suppress(FileExistsError):
                os.link(own, _failure(self.folder))  # the cause is the first one; others may follow from it
            sys.stdout.flush()
            os._exit(1)


def _failure(folder: str) -> Path:
    return Path(folder, "failure")


def _pickled(index: int, error: BaseException, text: str) -> bytes:
    """An exception that cannot be pickled, or not be read again, becomes a RuntimeError."""
    try:
        made = pickle.dumps((index, error, text))
        pickle.loads(made)
    except Exception:
        made = pickle.dumps((index, RuntimeError(f"{type(error).__name__}: {error}"), text))
    return made


@contextlib.contextmanager
def end_of_replicas(folder: str) -> Iterator[None]:
    """In the parent: what a replica raised, with its rank and its traceback, in the place of the end of its process."""
    try:
        yield
    except Exception as broken:
        if not _failure(folder).exists():
            raise
        index, error, text = pickle.loads(_failure(folder).read_bytes())
        raise error from RuntimeError(f"replica {index} failed ({broken}):\n{text}")
