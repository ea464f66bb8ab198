"""Programs that one process has compiled are loaded by another.

Usage: cache.py. Starts itself twice with `--folder FOLDER`.
The folder of `xr.initialize_cache` is PyTorch/XLA's. 2.9 writes to it and cannot load from it: its client of PJRT
plugins has no function for that. The board's own cache works with both: the second process writes nothing to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch_xla
import torch_xla.debug.metrics as met
import torch_xla.runtime as xr


def work(folder: str) -> None:
    """A training step; prints what became of its programs, as JSON."""
    xr.initialize_cache(folder, readonly=False)
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.GELU(), torch.nn.Linear(30, 4)).to(device)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-2), []
    x = torch.randn(16, 20, generator=torch.Generator().manual_seed(1)).to(device)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    compilations = met.metric_data("CompileTime")
    print(json.dumps({"losses": losses, "hits": met.counter_value("PersistentCacheHit") or 0,
                      "misses": met.counter_value("PersistentCacheMiss") or 0,
                      "compilations": compilations[0] if compilations else 0}))


def main() -> int:
    """Runs both."""
    if "--folder" in sys.argv:
        work(sys.argv[-1])
        return 0
    loads = torch_xla.__version__.startswith("2.5")
    with tempfile.TemporaryDirectory() as folder:
        theirs, own = Path(folder) / "theirs", Path(folder) / "own"
        theirs.mkdir()
        runs, files = [], []
        for _ in range(2):
            done = subprocess.run([sys.executable, __file__, "--folder", str(theirs)], check=True,
                                  stdout=subprocess.PIPE, env=os.environ | {"TPUBOARD_CACHE": str(own)})
            runs.append(json.loads(done.stdout.splitlines()[-1]))
            files.append({file: file.stat().st_mtime_ns for file in own.iterdir()})
            print(runs[-1], f"{len(files[-1])} files")
    first, second = runs
    good = (first["misses"] > 0 and first["hits"] == 0 and second["misses"] == 0
            and second["hits"] == (first["misses"] if loads else 0)
            and second["losses"] == first["losses"] and files[0] and files[0] == files[1])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
