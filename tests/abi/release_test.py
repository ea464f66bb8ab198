"""sim_scripts/release: the files of a release, twice the same bytes, with checksums that fit, and a bill of materials
that has what is linked; and what it rejects. In a clone, so that the tree may have changes.

Usage: release_test.py --build DIR
Exit code: 77 if abigail-tools or the build's libraries are missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
EXPECTED = {"CHANGELOG.md", "SHA256SUMS"}
RELATIONS = {"DESCRIBES", "DYNAMIC_LINK", "STATIC_LINK", "CONTAINS", "RUNTIME_DEPENDENCY_OF", "OPTIONAL_DEPENDENCY_OF"}


def release(tree: Path, out: Path, build: Path, as_built: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs the script without the artefacts that take minutes."""
    return subprocess.run([str(tree / "sim_scripts/release"), "--out", str(out), "--build-dir", str(build),
                           *(["--as-built"] if as_built else []), "--without", "wheel", "deb", "site"],
                          check=False, capture_output=True, text=True)


def bill_errors(path: Path) -> list[str]:
    """What is wrong with a bill of materials."""
    document = json.loads(path.read_text("utf-8"))
    ids = [each["SPDXID"] for each in [document, *document["packages"], *document["files"]]]
    names = {each["name"] for each in document["packages"]}
    errors = [f"{name} is in the bill twice" for name in set(ids) if ids.count(name) > 1]
    for relation in document["relationships"]:
        if relation["relationshipType"] not in RELATIONS:
            errors.append(f"unknown relationship {relation}")
        errors += [f"{relation} names what the bill does not have"
                   for key in ("spdxElementId", "relatedSpdxElement") if relation[key] not in ids]
    errors += [f"the bill does not have {name}" for name in ("libc6", "libstdc++6", "libxbyak-dev", "jax", "numpy",
                                                               "picolibc-riscv64-unknown-elf", "mlxtend")
               if name not in names]
    errors += [f"the bill has {name}, which only tests use" for name in ("libgtest-dev", "libunicorn-dev")
               if name in names]
    return errors


def release_script() -> ModuleType:
    """The script as a module."""
    sys.path.insert(0, str(ROOT / "sim_scripts"))
    loader = SourceFileLoader("release", str(ROOT / "sim_scripts/release"))
    spec = importlib.util.spec_from_loader("release", loader)
    assert spec is not None
    script = importlib.util.module_from_spec(spec)
    loader.exec_module(script)
    return script


def archive_errors(script: ModuleType, folder: Path) -> list[str]:
    """What an archive has of the user who packs it."""
    archives = []
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            tree = folder / f"{mask:o}"
            (tree / "pages").mkdir(parents=True)
            (tree / "pages/index.html").write_text("text", "utf-8")
            (tree / "run").touch(0o755)
        finally:
            os.umask(before)
        archives.append(folder / f"{mask:o}.tar.gz")
        script.pack(tree, "name", archives[-1], 1)
    one, two = (path.read_bytes() for path in archives)
    return [] if one == two else ["an archive depends on the umask"]


def replacement_errors(script: ModuleType, folder: Path) -> list[str]:
    """What is wrong with a release in the place of another one, wherever the run is killed."""
    new, out = folder / "new", folder / "out"
    names = ["CHANGELOG.md", "tpuboard-1.tar.gz", "tpuboard-1.spdx.json"]
    for where in (new, out):
        where.mkdir()
        for name in names:
            (where / name).touch()
        (where / "SHA256SUMS").write_text("".join(f"0  {name}\n" for name in names), "ascii")
    errors = []
    found = script.files_of_release(out)
    if [path.name for path in found] != [*sorted(names), "SHA256SUMS"]:
        errors.append(f"files of a release are {found}")
    for _ in script.replace(found, new, out):
        try:
            script.files_of_release(out)
        except SystemExit as error:
            errors.append(f"a run was killed: {error}")
    if {path.name for path in out.iterdir()} != {*names, "SHA256SUMS"}:
        errors.append(f"replaced by {sorted(out.iterdir())}")
    (out / "SHA256SUMS").write_text("".join(f"0  {name}\n" for name in names[:2]), "ascii")
    (out / names[2]).unlink()
    try:
        script.files_of_release(out)
        errors.append("checksums of others are taken for a release")
    except SystemExit:
        pass
    return errors


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    build = parser.parse_args().build.resolve()
    if shutil.which("abidw") is None or not (build / "host_driver/libtpuboard.so").exists():
        print("release: abidw or libtpuboard.so is missing")
        return SKIPPED
    errors = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tree, one, two = folder / "tree", folder / "one", folder / "two"
        (folder / "states").mkdir()
        script = release_script()
        errors += replacement_errors(script, folder / "states")
        errors += archive_errors(script, folder / "archives")
        subprocess.run(["git", "clone", "-q", str(ROOT), str(tree)], check=True)
        for out in (one, two):
            done = release(tree, out, build)
            if done.returncode != 0:
                print(f"release fails:\n{done.stdout}{done.stderr}")
                return 1
        files = {path.name for path in one.iterdir()}
        if EXPECTED - files or not any(each.endswith(".tar.gz") for each in files):
            errors.append(f"the release has {sorted(files)}")
        errors += [f"{each} differs between two runs" for each in files
                   if (one / each).read_bytes() != (two / each).read_bytes()]
        subprocess.run(["sha256sum", "--quiet", "--strict", "--check", "SHA256SUMS"], cwd=one, check=True)
        (bill,) = one.glob("*.spdx.json")
        errors += bill_errors(bill)
        (tree / "LICENSE").write_text("changed", "utf-8")
        if "not committed" not in release(tree, two, build).stderr:
            errors.append("a tree with changes is released")
        subprocess.run(["git", "-C", str(tree), "checkout", "-q", "LICENSE"], check=True)
        if f"expected one of {tree}" not in release(tree, two, build, as_built=False).stderr:
            errors.append("a build of another tree is released")
        (one / "notes.txt").touch()
        is_rejected = "not of a release (notes.txt)" in release(tree, one, build).stderr
        if not is_rejected or not (one / "CHANGELOG.md").exists():
            errors.append("a folder with a file of others is emptied")
        (one / "notes.txt").unlink()
        (one / "SHA256SUMS").unlink()
        if "not of a release" not in release(tree, one, build).stderr:
            errors.append("a folder with other files is overwritten")
    print("\n".join(errors) if errors else "the release is complete")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
