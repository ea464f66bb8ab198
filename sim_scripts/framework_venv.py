"""Virtual environments of pinned packages: kept until a new one is complete.

Usage: framework_venv.py TARGET REQUIREMENTS WHAT [PYTHON]
Makes the environment with the packages of the file of requirements and their dependencies; one that has them is kept.
Exit code: 3 if the index of packages cannot be reached, or has no package for this host; 1 for other faults.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "3.11"
NO_PACKAGES = 3  # exit code


class NoPackagesError(Exception):
    """Packages that cannot be downloaded or do not exist for this Python."""


# What pip says when the network is missing, or the index has no wheel for this Python and processor.
UNREACHABLE = re.compile(r"\(from versions: none\)|NewConnectionError|ConnectTimeout|"
                         r"ReadTimeout|ProxyError|Connection (?:refused|reset|aborted)|Network is unreachable|"
                         r"name resolution|HTTP error 5\d\d")


def interpreter() -> str:
    found = shutil.which(f"python{PYTHON}") or sys.executable
    done = subprocess.run([found, "-c", "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"],
                          check=False, capture_output=True, text=True)
    if done.stdout.strip() != PYTHON:
        raise NoPackagesError(f"Python {PYTHON} with ensurepip and venv is needed: the pinned packages have no "
                              f"wheel for '{found}'; install python{PYTHON} and put it on PATH")
    return found


@contextlib.contextmanager
def kept_until_complete(target: Path) -> Iterator[None]:
    """The environment of before is beside the new one, which has its own path in its scripts, and comes back when
    that one fails or the process is told to end."""
    old, gone = target.with_name(target.name + ".old"), target.with_name(target.name + ".gone")
    shutil.rmtree(gone, ignore_errors=True)
    if old.exists():  # the last run was killed
        shutil.rmtree(target, ignore_errors=True)
    elif target.exists():
        target.rename(old)
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        if old.exists():
            old.rename(target)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    if old.exists():
        old.rename(gone)  # what has the name .old is always complete
        shutil.rmtree(gone, ignore_errors=True)


def install(requirements: Path, python: str, target: Path, dependencies: bool = False) -> Path:
    """Makes the environment with the packages of the file, without their dependencies unless these are wanted; the
    folder of its packages."""
    subprocess.run([python, "-m", "venv", str(target)], check=True)
    done = subprocess.run([str(target / "bin/pip"), "install", "--quiet", "--disable-pip-version-check",
                           *([] if dependencies else ["--no-deps"]), "-r", str(requirements)],
                          check=False, capture_output=True, text=True)
    if done.returncode != 0:
        text = f"pip cannot install {requirements}:\n{done.stderr.strip()[-2000:]}"
        raise NoPackagesError(text) if UNREACHABLE.search(done.stderr) else SystemExit(text)
    (packages,) = target.glob("lib/python*/site-packages")
    return packages


def environment(target: Path, requirements: Path, what: str, python: str | None = None,
                dependencies: bool = False) -> Path:
    """The environment with the packages of the file; one that has them is kept. `python`: default interpreter()."""
    stamp, state = target / "requirements.txt", requirements.read_text("ascii")
    if not stamp.exists() or stamp.read_text("ascii") != state:
        print(f"== installing {what} ({target})", flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        with kept_until_complete(target):
            install(requirements, python or interpreter(), target, dependencies)
            stamp.write_text(state, "ascii")
    return target


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("requirements", type=Path)
    parser.add_argument("what", help="what it is for, which is printed when it has to be made")
    parser.add_argument("python", nargs="?", default="python3")
    options = parser.parse_args()
    try:
        environment(options.target, options.requirements, options.what, options.python, dependencies=True)
    except NoPackagesError as error:
        print(f"framework_venv: {error}", file=sys.stderr)
        raise SystemExit(NO_PACKAGES) from None


if __name__ == "__main__":
    main()
