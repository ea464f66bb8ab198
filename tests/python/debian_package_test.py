"""cpack makes a Debian package that has its parts where they belong, and that lintian accepts where it is installed; an
installed tree works after it was moved.

Usage: debian_package_test.py --build DIR
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What lintian asks of packages of the distribution alone, or of sources that others wrote.
SUPPRESSED = ("initial-upload-closes-no-bugs", "embedded-library")


def run(*words: str | Path, **options: object) -> str:
    """Output of a command that succeeds."""
    done = subprocess.run([str(word) for word in words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **options)
    assert done.returncode == 0, (words, done.returncode, done.stdout[-4000:])
    return done.stdout


def check_package(build: Path, work: Path) -> None:
    """Files, dependencies, lintian, and the demo of the unpacked tree."""
    made = []
    for folder in (work / "deb", work / "another_deb"):  # as a release packs it
        run("cpack", "-G", "DEB", "--config", build / "CPackConfig.cmake", "-B", folder,
            env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"})
        made += folder.glob("tpuboard_*.deb")
    package, again = made
    assert package.read_bytes() == again.read_bytes(), "two runs, two packages"
    files = run("dpkg-deb", "--contents", package)
    for name in ("bin/tpuboard", "bin/tpuc", "bin/tpuboard-exporter", "lib/tpuboard/libtpuboard_pjrt.so",
                 "lib/tpuboard/tpuboard_server", "include/tpu/tpu.h", "share/man/man1/tpuboard-doctor.1.gz",
                 "share/doc/tpuboard/copyright", "share/tpuboard/examples/mnist_mlp/train_step.mlirbc",
                 "share/tpuboard/boards/v3_8.toml", "share/bash-completion/completions/tpuboard"):
        assert f"./usr/{name}\n" in files, f"{name} is not in\n{files}"
    needs = run("dpkg-deb", "--field", package, "Depends")
    for name in ("libc6", "libssl3", "libsystemc", "libgrpc++"):
        assert name in needs, needs
    if shutil.which("lintian"):
        found = run("lintian", "--fail-on", "error,warning", "--suppress-tags", ",".join(SUPPRESSED), package)
        print(found)
    run("dpkg-deb", "--extract", package, work / "unpacked")
    notice = (work / "unpacked/usr/share/doc/tpuboard/copyright").read_text(encoding="utf-8")
    for words in ("Artistic-2.0 is chosen", "The Perl Foundation", "== picolibc-riscv64-unknown-elf", "== MNIST"):
        assert words in notice, words
    plugin = work / "unpacked/usr/lib/tpuboard/libtpuboard_pjrt.so"
    run(sys.executable, "-c", f"import ctypes; assert ctypes.CDLL({str(plugin)!r}).GetPjrtApi()")
    try_demo(work / "unpacked/usr", work)


def try_demo(prefix: Path, work: Path) -> None:
    """Two steps, with the examples and the library of the prefix."""
    out = work / "demo"
    # A tree where nothing has fetched the digits has none to install.
    data = () if (prefix / "share/tpuboard/digits/images.npy").exists() else ("--data", ROOT / "out/data/mnist")
    text = run(prefix / "bin/tpuboard", "demo", "--steps", "2", "--out", out, *data, cwd=work)
    assert "== done: 2 training steps" in text, text
    assert f"the examples in {prefix.relative_to(work)}/share/tpuboard/examples" in text, text
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"tpuboard {version} installed: {prefix}/bin/tpuboard" in run(prefix / "bin/tpuboard", "doctor", cwd=work)
    shutil.rmtree(out)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    build = parser.parse_args().build.resolve()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name).resolve()
        for component in ("tools", "share"):
            run("cmake", "--install", build, "--component", component, "--prefix", work / "first")
        (work / "first").rename(work / "moved")
        try_demo(work / "moved", work)
        check_package(build, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
