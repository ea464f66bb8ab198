"""The system that a build is for: this host, or the one of a cross-build, whose Debian packages are unpacked in a
sysroot (docs/aarch64.md)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

BATCH = 200  # files of one call of dpkg


def output_of(*command: str | Path) -> str:
    """Standard output of a command."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True, order=True)
class Package:
    """An installed Debian package: its name as dpkg writes it, and the sysroot that it is in; none: this host."""

    name: str
    root: str = ""

    @property
    def plain(self) -> str:
        """The name without the architecture."""
        return self.name.split(":")[0]

    @property
    def notice(self) -> Path:
        """The file of its licenses."""
        return Path(f"{self.root}/usr/share/doc/{self.plain}/copyright")

    def field(self, form: str) -> str:
        """What dpkg knows of it, such as ${Version}."""
        return output_of(*dpkg(self.root), "--show", f"--showformat={form}", self.name)


def dpkg(root: str) -> list[str]:
    """dpkg-query for the packages of a sysroot, or of this host."""
    return ["dpkg-query", *([f"--admindir={root}/var/lib/dpkg"] if root else [])]


def cached(build: Path, name: str) -> str:
    """An entry of CMake's cache; empty if there is none."""
    match = re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text("utf-8"), re.MULTILINE)
    return match[1] if match else ""


class TargetSystem:
    """Of a build folder."""

    def __init__(self, build: Path) -> None:
        named = cached(build, "TPU_AARCH64_SYSROOT")
        self.root = os.path.realpath(named) if named else ""
        self.machine = "aarch64" if named else os.uname().machine
        self.strip = cached(build, "CMAKE_STRIP") or "strip"
        self.build = build

    def under(self, folder: str) -> tuple[str, ...]:
        """The folder on this host and, if there is one, in the sysroot."""
        return (folder, self.root + folder) if self.root else (folder,)

    def owners(self, files: Iterable[str]) -> set[Package]:
        """Debian packages that have these files of host and sysroot; files of no package are left out."""
        inside, outside = set(), set()
        for name in files:
            path = os.path.normpath(name)
            if self.root and path.startswith(self.root + "/"):
                inside.add(path.removeprefix(self.root))
            else:
                outside.add(path)
        return search(outside, "") | search(inside, self.root)

    def linked(self, programs: Iterable[Path]) -> set[Package]:
        """Packages of the shared libraries that these files need."""
        # The loader by itself, since a library cannot be emulated as a program.
        loader = (["qemu-aarch64", "-L", self.root, f"{self.root}/lib/ld-linux-aarch64.so.1", "--list"] if self.root
                  else ["ldd"])
        if shutil.which(loader[0]) is None:
            raise SystemExit(f"target_system: {loader[0]} not found; apt-get install qemu-user")
        libraries = set()
        for program in programs:
            for line in output_of(*loader, program).splitlines():
                path = re.search(r"=> (/\S+)|^\s+(/\S+)", line)
                if path and not Path(path[1] or path[2]).is_relative_to(self.build):
                    libraries.add((path[1] or path[2]).removeprefix(self.root))
        # A merged /usr: the package may have the file under either name.
        both = libraries | {f"/usr{path}" for path in libraries} | {path.removeprefix("/usr") for path in libraries}
        return search(both, self.root)

    def library_folders(self) -> list[str]:
        """Where the shared libraries of a sysroot are; none on this host, whose loader knows."""
        names = (f"{self.root}{folder}/aarch64-linux-gnu" for folder in ("/usr/lib", "/lib") if self.root)
        return [name for name in names if Path(name).is_dir()]


def search(files: set[str], root: str) -> set[Package]:
    """Packages of one system that have these files."""
    names, found = sorted(files), set()
    for at in range(0, len(names), BATCH):
        done = subprocess.run([*dpkg(root), "--search", *names[at:at + BATCH]], check=False, capture_output=True,
                              text=True)
        found |= {Package(line.split(": ", 1)[0].split(",")[0], root) for line in done.stdout.splitlines()
                  if not line.startswith("diversion ")}
    return found
