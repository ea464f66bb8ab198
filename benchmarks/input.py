"""Record files to batches: tpuboard's input against Python's grain, on the same files in one run.

`input-bench` makes the files and measures read() and batches. grain's records are taken as they come: bytes, not
parsed, not in batches, each process reading files of its own, so that nothing passes between processes; that is less
work than a batch. Needs grain (pip install grain) for its lines.
Usage: input.py --bin BUILD/bin [--folder FOLDER] [--threads N]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import subprocess
import tempfile
import time
from pathlib import Path


def cpu_seconds() -> float:
    """Of this process so far."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def grain_records(paths: list[str]) -> tuple[int, float]:
    """Bytes of all records, and the processor time they took."""
    import grain

    start, total = cpu_seconds(), 0
    for path in paths:
        for record in grain.experimental.TFRecordIterDataset(path):
            total += len(record)
    return total, cpu_seconds() - start


def measure_grain(files: list[str], processes: int) -> str:
    """One line, of the files in memory."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.map(grain_records, [[path] for path in files[:processes]], chunksize=1)  # imports, page cache
        start = time.perf_counter()
        results = pool.map(grain_records, [files[i::processes] for i in range(processes)], chunksize=1)
        wall = time.perf_counter() - start
    megabytes = sum(total for total, _ in results) / 1e6
    cpu = sum(seconds for _, seconds in results)
    rate = f"{megabytes / wall:6.0f} MB/s           {megabytes / cpu:6.0f} MB a CPU second"
    return f"  {'grain, records not parsed':<36} {rate}"


def main() -> None:
    """Prints ours, then grain's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "tpuboard_input_bench")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    command = [str(options.bin / "input-bench"), str(options.folder), str(options.threads)]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")
    try:
        import grain
    except ImportError:
        print("grain is not installed in this Python: no lines of it")
        return
    print(f"grain {getattr(grain, '__version__', '')}, {options.threads} processes, from memory")
    for name in ("large", "small"):
        files = sorted(str(path) for path in options.folder.glob(f"{name}-*.tfrecord"))
        print(f"{name} records\n{measure_grain(files, options.threads)}")


if __name__ == "__main__":
    main()
