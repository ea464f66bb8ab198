"""The same sources give the same bytes, in every folder.

With --build: the shipped files of a build name neither the folder of the sources nor that of the build.
With --twice TARGET..: copies the commit into two folders with names of different lengths, builds the targets in both,
without ccache, and compares all objects and libraries.

Usage: reproducible_test.py --build DIR | --twice TARGET..
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("bin/tpuc", "bin/tpuboard", "bin/tpuboard-exporter", "lib/libtpuboard_pjrt.so", "lib/tpuboard_server",
           "host_driver/libtpuboard.so", "firmware/image/firmware.elf")
CONTEXT = 120  # bytes around a path in messages


def paths_inside(build: Path) -> list[str]:
    """Shipped files that name a folder of this host."""
    errors, looked = [], 0
    folders = {str(folder).encode() for path in (ROOT, build) for folder in (path, path.resolve())}
    for name in SHIPPED:
        if not (build / name).exists():
            continue
        looked += 1
        content = (build / name).read_bytes()
        for folder in sorted(folders):
            at = content.find(folder + b"/")
            if at >= 0:
                text = content[at:at + CONTEXT].split(b"\0")[0].decode("utf-8", "replace")
                errors.append(f"{name} names a folder of this host, so its bytes depend on it: {text}")
                break
    return errors if looked else [f"{build} has none of {', '.join(SHIPPED)}: build them first"]


def built(folder: Path, archive: bytes, targets: list[str]) -> dict[str, bytes]:
    """Objects and libraries of the targets, by name in the build folder."""
    source, build = folder / "source", folder / "build"
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(source)
    variables = os.environ | {"CCACHE_DISABLE": "1"}
    for command in (["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                     "-DCMAKE_UNITY_BUILD=ON", "-DTPU_BUILD_TESTS=OFF", "-DTPU_BUILD_BENCHMARKS=OFF"],
                    ["cmake", "--build", build, "--target", *targets]):
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
        if done.returncode != 0:
            raise SystemExit(f"reproducible: {command[:2]} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return {str(path.relative_to(build)): path.read_bytes() for pattern in ("*.o", "*.a", "*.so*")
            for path in sorted(build.rglob(pattern)) if path.is_file() and "CompilerId" not in str(path)}


def differences(targets: list[str]) -> list[str]:
    """Files that differ between two builds."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as name:
        one, two = Path(name) / "a", Path(name) / "another/and/longer"
        two.mkdir(parents=True)
        one.mkdir()
        first, second = built(one, archive, targets), built(two, archive, targets)
    errors = [f"only one build made {file}" for file in sorted(first.keys() ^ second.keys())]
    errors += [f"{file} differs between two folders" for file in first if second.get(file, b"") != first[file]]
    print(f"{len(first)} objects and libraries compared")
    return errors if first else ["the targets made no objects"]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--build", type=Path)
    what.add_argument("--twice", nargs="+", metavar="TARGET")
    options = parser.parse_args()
    errors = paths_inside(options.build.resolve()) if options.build else differences(options.twice)
    print("\n".join(errors) if errors else "the same bytes in every folder")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
