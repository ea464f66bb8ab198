"""Packages of a cross-build are those of its sysroot, those of a build for this host the host's: what notices, bill of
materials and wheel name."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sim_scripts"))

from notices import package_sections  # noqa: E402
from release_sbom import deb_package  # noqa: E402
from target_system import Package, TargetSystem  # noqa: E402

STATUS = """Package: libexample1
Status: install ok installed
Maintainer: nobody
Architecture: arm64
Multi-Arch: same
Version: 7.1-2
Homepage: https://example.org
Description: a library

Package: dpkg
Status: install ok installed
Maintainer: nobody
Architecture: arm64
Version: 0.0-of-the-sysroot
Description: on both systems

"""
LIBRARY = "/usr/lib/aarch64-linux-gnu/libexample.so.1"
HOST_FILE = "/usr/bin/dpkg-query"


class Packages(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = Path(temporary.name).resolve()
        self.sysroot, self.build = folder / "sysroot", folder / "build"
        self.build.mkdir()
        database = self.sysroot / "var/lib/dpkg"
        (database / "info").mkdir(parents=True)
        (database / "status").write_text(STATUS, "utf-8")
        (database / "info/libexample1.list").write_text(f"/.\n/usr\n{LIBRARY}\n", "utf-8")
        for name in ("libexample1", "dpkg"):
            notice = self.sysroot / f"usr/share/doc/{name}/copyright"
            notice.parent.mkdir(parents=True)
            notice.write_text("License: Example\n text of the license\n", "utf-8")
        (self.sysroot / LIBRARY[1:]).parent.mkdir(parents=True)

    def cache(self, *lines: str) -> TargetSystem:
        (self.build / "CMakeCache.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return TargetSystem(self.build)

    def test_cross_build(self) -> None:
        system = self.cache(f"TPU_AARCH64_SYSROOT:PATH={self.build}/../sysroot",
                            "CMAKE_STRIP:FILEPATH=/usr/bin/aarch64-linux-gnu-strip")
        self.assertEqual(system.machine, "aarch64")
        self.assertEqual(system.strip, "/usr/bin/aarch64-linux-gnu-strip")
        self.assertEqual(system.under("/usr/"), ("/usr/", f"{self.sysroot}/usr/"))
        self.assertEqual(system.library_folders(), [f"{self.sysroot}/usr/lib/aarch64-linux-gnu"])
        inside = Package("libexample1:arm64", str(self.sysroot))
        # As the compiler writes it: through the folder of the toolchain file.
        self.assertEqual(system.owners([f"{self.build}/../sysroot{LIBRARY}", HOST_FILE]), {inside, Package("dpkg")})
        self.assertEqual(system.owners([LIBRARY]), set(), "a file of the sysroot, looked for on the host")
        (text,), notices = package_sections({inside})
        self.assertIn("== libexample1 7.1-2; https://example.org", text)
        self.assertEqual(notices, [inside.notice.read_text("utf-8")])
        package = deb_package(inside)
        self.assertEqual(package["externalRefs"][0]["referenceLocator"], "pkg:deb/debian/libexample1@7.1-2?arch=arm64")
        self.assertIn("Example", package["licenseComments"])

    def test_one_package_on_both_systems(self) -> None:
        """Its notices are in one order, whichever of the two is found first."""
        both = [Package("dpkg"), Package("dpkg", str(self.sysroot))]
        parts, _ = package_sections(dict.fromkeys(both))
        self.assertEqual(len(parts), 2)
        self.assertIn("dpkg 0.0-of-the-sysroot", parts[1])
        self.assertEqual(package_sections(dict.fromkeys(reversed(both)))[0], parts)

    def test_libraries_of_a_cross_build(self) -> None:
        """The loader of the sysroot is emulated: a library by itself is no program."""
        system = self.cache(f"TPU_AARCH64_SYSROOT:PATH={self.sysroot}")
        emulator, asked = self.build / "qemu-aarch64", self.build / "asked"
        emulator.write_text(f'#!/bin/sh\necho "$@" >{asked}\necho "\tlibexample.so.1 => {LIBRARY} (0x55)"\n', "utf-8")
        emulator.chmod(0o755)
        with mock.patch.dict(os.environ, {"PATH": f"{self.build}:{os.environ['PATH']}"}):
            self.assertEqual(system.linked([Path("libshipped.so")]), {Package("libexample1:arm64", str(self.sysroot))})
        loader = f"{self.sysroot}/lib/ld-linux-aarch64.so.1"
        self.assertEqual(asked.read_text("utf-8").split(), ["-L", str(self.sysroot), loader, "--list", "libshipped.so"])
        with mock.patch.dict(os.environ, {"PATH": str(self.sysroot)}), self.assertRaisesRegex(SystemExit, "qemu-user"):
            system.linked([Path("libshipped.so")])

    def test_build_for_this_host(self) -> None:
        system = self.cache("CMAKE_BUILD_TYPE:STRING=Release")
        self.assertEqual((system.root, system.strip), ("", "strip"))
        self.assertEqual(system.under("/usr/"), ("/usr/",))
        self.assertEqual(system.library_folders(), [])
        self.assertEqual(system.owners([HOST_FILE, f"{self.sysroot}{LIBRARY}"]), {Package("dpkg")})
        self.assertIn(Package("dpkg"), system.owners([HOST_FILE]))
        names = {package.plain for package in system.linked([Path("/bin/sh")])}
        self.assertEqual(names, {"libc6"})


if __name__ == "__main__":
    unittest.main()
