"""Boots a Linux guest of QEMU that has the chips of a board as PCI functions, and runs a program in it (docs/vfio.md).

The guest's disk is an archive in memory: busybox, the modules of vfio-pci, tpuboard with its libraries, the program.
In the guest, tpuboard finds the chips by Linux's VFIO. The results must have the bits that they have on this host.
Exit code 77 says that something is not there that this needs: QEMU 10.1 with vfio-user-pci, a kernel, busybox.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = 77
MODULES = ("irqbypass", "vfio_virqfd", "vfio", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci")
CHIPS = 4
SHAPES = ((32, 200), (200, 96), (96,))  # of examples/tanh_layer
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc p /proc; /bin/busybox mount -t sysfs s /sys; /bin/busybox mount -t devtmpfs d /dev
echo GUEST LINUX $(/bin/busybox uname -r)
for module in /modules/*; do /bin/busybox insmod $module; done
for device in /sys/bus/pci/devices/*; do
  if [ "$(/bin/busybox cat $device/vendor)" = 0x1ae0 ]; then
    echo GUEST FUNCTION ${device##*/} class $(/bin/busybox cat $device/class)
    echo vfio-pci > $device/driver_override
    echo ${device##*/} > /sys/bus/pci/drivers_probe
  fi
done
ulimit -l unlimited
/program/tpuboard devices --connect vfio:
/program/tpuboard run /program/tanh.tpuexe --in 0=/program/0.npy --in 1=/program/1.npy --in 2=/program/2.npy \\
  --out-dir /out --connect vfio:
echo GUEST RESULT $(/bin/busybox sha256sum /out/0.npy)
/bin/busybox poweroff -f
"""


class MissingError(Exception):
    """Something that the guest needs is not on this host."""


def find_qemu(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise MissingError(f"no {name}: install QEMU 10.1 or newer, or name it by --qemu")
    devices = subprocess.run([path, "-device", "help"], capture_output=True, text=True, check=False).stdout
    if "vfio-user-pci" not in devices:
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
        raise MissingError(f"{path} has no vfio-user-pci, which came with QEMU 10.1: {version}")
    return path


def find_kernel(kernel: str, modules: str) -> tuple[Path, list[Path]]:
    """The kernel, and its modules in the order in which they are loaded; those that are built in are left out."""
    release = platform.release()
    image = Path(kernel or f"/boot/vmlinuz-{release}")
    folder = Path(modules or f"/lib/modules/{release}")
    if not image.is_file() or not folder.is_dir():
        raise MissingError(f"no kernel {image} with modules in {folder}: name them by --kernel and --modules")
    found = []
    for name in MODULES:
        pattern = re.sub("[_-]", "[_-]", name) + ".ko*"
        found += sorted(folder.rglob(pattern))[:1]
    if not any(path.name.startswith("vfio-pci.ko") for path in found):
        raise MissingError(f"{folder} has no vfio-pci.ko")
    return image, found


def unpacked(module: Path) -> bytes:
    data = module.read_bytes()
    if module.suffix == ".gz":
        return gzip.decompress(data)
    if module.suffix == ".xz":
        import lzma
        return lzma.decompress(data)
    if module.suffix != ".ko":
        raise MissingError(f"{module}: expected a module that is not packed, or by gzip or xz")
    return data


def libraries(program: Path) -> list[Path]:
    text = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    return [Path(path) for path in re.findall(r"(?:=> )?(/\S+) \(0x", text)]


def archive(files: dict[str, tuple[int, bytes]]) -> bytes:
    """A cpio archive of the format newc; folders come before what is in them."""
    folders = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
    entries = {name: (0o040755, b"") for name in folders} | files
    out = b""
    for number, name in enumerate([*sorted(entries), "TRAILER!!!"], 1):
        mode, data = entries.get(name, (0, b""))
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        out += head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)
    return out


def array_file(shape: tuple[int, ...], seed: int) -> bytes:
    """A NumPy file of f32 between -1 and 1."""
    head = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    count = 1
    for size in shape:
        count *= size
    values = []
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) % 2**31
        values.append(seed / 2**30 - 1)
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + struct.pack(f"<{count}f", *values)


def guest_files(folder: Path, tpuboard: Path, busybox: Path, modules: list[Path]) -> dict[str, tuple[int, bytes]]:
    files = {"init": (0o100755, INIT.encode()), "bin/busybox": (0o100755, busybox.read_bytes())}
    files |= {f"{name}/.keep": (0o100644, b"") for name in ("proc", "sys", "dev", "out", "tmp")}
    for number, module in enumerate(modules):
        files[f"modules/{number}.ko"] = (0o100644, unpacked(module))
    files["program/tpuboard"] = (0o100755, tpuboard.read_bytes())
    for library in libraries(tpuboard):
        files[str(library).lstrip("/")] = (0o100755, library.read_bytes())
    for path in sorted(folder.glob("*.npy")) + [folder / "tanh.tpuexe"]:
        files[f"program/{path.name}"] = (0o100644, path.read_bytes())
    return files


def boot(arguments: argparse.Namespace, folder: Path, qemu: str, kernel: Path, sockets: Path) -> str:
    """What the guest writes to its console."""
    words = [qemu, "-machine", "q35,kernel-irqchip=split", "-cpu", "max", "-accel", arguments.accel, "-m", "2G",
             "-object", "memory-backend-memfd,id=ram,size=2G,share=on", "-numa", "node,memdev=ram",
             "-device", "intel-iommu,intremap=on,caching-mode=on,aw-bits=48", "-kernel", str(kernel),
             "-initrd", str(folder / "guest.cpio.gz"), "-append", "console=ttyS0 intel_iommu=on quiet panic=-1",
             "-nographic", "-no-reboot", "-nic", "none"]
    for chip in range(CHIPS):
        socket = f'"socket":{{"type":"unix","path":"{sockets}/chip{chip}.sock"}}'
        words += ["-device", f'{{"driver":"vfio-user-pci","addr":"{16 + chip:#x}",{socket}}}']
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=arguments.timeout, errors="replace")
    return done.stdout + done.stderr


def run(arguments: argparse.Namespace) -> None:
    qemu = find_qemu(arguments.qemu)
    kernel, modules = find_kernel(arguments.kernel, arguments.modules)
    busybox = shutil.which(arguments.busybox)
    if busybox is None or "not a dynamic executable" not in subprocess.run(
            ["ldd", busybox], capture_output=True, text=True, check=False).stderr:
        raise MissingError("no busybox without libraries (package busybox-static): name it by --busybox")
    tpuboard, tpuc = (arguments.bin / name for name in ("tpuboard", "tpuc"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        artifact = ROOT / "examples/tanh_layer/tanh_layer.mlirbc"
        subprocess.run([tpuc, artifact, "-o", folder / "tanh.tpuexe"], check=True)
        inputs = []
        for number, shape in enumerate(SHAPES):
            (folder / f"{number}.npy").write_bytes(array_file(shape, number + 1))
            inputs += ["--in", f"{number}={folder}/{number}.npy"]
        subprocess.run([tpuboard, "run", folder / "tanh.tpuexe", *inputs, "--out-dir", folder / "out"], check=True,
                       capture_output=True)
        expected = hashlib.sha256((folder / "out/0.npy").read_bytes()).hexdigest()
        data = archive(guest_files(folder, tpuboard, Path(busybox), modules))
        (folder / "guest.cpio.gz").write_bytes(gzip.compress(data, 1))
        with subprocess.Popen([tpuboard, "serve", "--vfio-user", folder / "board"], stdout=subprocess.PIPE) as server:
            server.stdout.readline()
            try:
                text = boot(arguments, folder, qemu, kernel, folder / "board")
            finally:
                server.terminate()
    print(text)
    functions = text.count("GUEST FUNCTION")
    if functions != CHIPS or f"GUEST RESULT {expected}" not in text:
        sys.exit(f"the guest has {functions} functions (expected {CHIPS}), or not the result {expected}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin", help="folder of tpuboard and tpuc")
    parser.add_argument("--qemu", default="qemu-system-x86_64")
    parser.add_argument("--kernel", default="", help="image of the guest's kernel (default: that of this host)")
    parser.add_argument("--modules", default="", help="folder of its modules")
    parser.add_argument("--busybox", default="busybox")
    parser.add_argument("--accel", default="tcg", help="tcg or kvm")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for the guest")
    try:
        run(parser.parse_args())
    except MissingError as missing:
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
