"""`tpuboard doctor` finds what is wrong with an environment, `tpuboard demo` says what it lacks, and
`tpuboard examples` copies what it has.

Usage: doctor_test.py TPUBOARD
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TPUBOARD = str(Path(sys.argv.pop()).resolve())
ROOT = Path(__file__).resolve().parents[2]
QEMU = shutil.which("qemu-x86_64")
# What the look at a Python prints.
LISTED = {"executable": "/opt/python", "version": [3, 12, 1], "module": "/opt/tpuboard/__init__.py", "plugins": [],
          "packages": {}}


class Case(unittest.TestCase):
    """A folder for each test, and variables that name nothing else."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.variables = {key: value for key, value in os.environ.items()
                          if not key.startswith(("TPU", "JAX", "PJRT", "XDG", "LD_PRELOAD", "VIRTUAL_ENV"))}
        self.variables |= {"HOME": str(self.folder), "LC_ALL": "C.UTF-8"}

    def run_command(self, *words: str, before: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess:
        """The command in the folder."""
        return subprocess.run([*before, TPUBOARD, *words], env=self.variables | variables, cwd=self.folder, text=True,
                              capture_output=True, check=False, timeout=100)

    def fake_python(self, **changes: object) -> str:
        """A program that prints such a list of packages."""
        program = self.folder / "python"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(LISTED | changes)}\nEND\n", encoding="utf-8")
        program.chmod(0o755)
        return str(program)


class Doctor(Case):
    """Findings of changed environments."""

    def doctor(self, *words: str, before: tuple[str, ...] = (), code: int = 0, **variables: str) -> list[dict]:
        """The findings that are not ok."""
        options = words if "--python" in words else ("--python", self.fake_python(), *words)
        done = self.run_command("doctor", "--json", "-", *options, before=before, **variables)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["problems"], sum(found["level"] == "problem" for found in report["findings"]))
        return [found for found in report["findings"] if found["level"] != "ok"]

    def found(self, findings: list[dict], level: str, text: str, advice: str = "") -> None:
        """One of them is this."""
        self.assertTrue([found for found in findings if found["level"] == level and text in found["text"]
                         and advice in found["advice"]], f"{level}: {text}: {advice}: not in {findings}")

    def test_text(self) -> None:
        """People get a line for each finding, and the board boots."""
        done = self.run_command("doctor", "--python", self.fake_python())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for text in ("tpuboard ", "glibc 2.", "v3_8 with 8 devices", "0 problems"):
            self.assertIn(text, done.stdout)

    def test_variables(self) -> None:
        """Variables that keep frameworks from the board."""
        found = self.doctor(code=1, TPUBOARD_THREDS="2", TPU_LIBRARY_PATH="/nowhere/libtpuboard_pjrt.so",
                            JAX_PLATFORMS="cpu")
        self.found(found, "problem", "unknown environment variable TPUBOARD_THREDS", "TPUBOARD_THREADS")
        self.found(found, "problem", "/nowhere/libtpuboard_pjrt.so, which does not exist", "unset it")
        self.found(found, "warning", "JAX_PLATFORMS is cpu", "JAX_PLATFORMS=tpu")

    def test_other_library(self) -> None:
        """A library of another package, and one of another installation."""
        other = self.folder / "libtpu.so"
        other.touch()
        self.found(self.doctor(TPU_LIBRARY_PATH=str(other)), "warning", "another library", "unset it")
        if (Path(TPUBOARD).parent.parent / "lib/libtpuboard_pjrt.so").exists():
            copy = self.folder / "libtpuboard_pjrt.so"
            copy.touch()
            self.found(self.doctor(TPU_LIBRARY_PATH=str(copy)), "warning", "another installation")

    def test_folders(self) -> None:
        """A home that cannot be written to or is not there, and a terminal without UTF-8."""
        closed = self.folder / "file"
        closed.touch()
        found = self.doctor(HOME=str(closed), LC_ALL="C", TMPDIR=str(self.folder))
        self.found(found, "warning", f"{closed} is not a folder", "TPUBOARD_CACHE=DIR")
        self.found(found, "note", "ANSI_X3.4-1968", "C.UTF-8")
        self.found(self.doctor(HOME=""), "warning", "HOME is not set")
        self.found(self.doctor(LC_ALL="xx_YY.UTF-8"), "note", "is missing")

    @unittest.skipUnless(QEMU and platform.machine() == "x86_64", "needs qemu-x86_64 (Debian: qemu-user)")
    def test_a_processor_without_avx(self) -> None:
        """The board boots without an instruction that the processor lacks, and nothing is promised for it."""
        findings = self.doctor(before=(QEMU or "", "-cpu", "Nehalem"))
        self.found(findings, "warning", "no AVX2", "not run as Verilog")

    def test_limits(self) -> None:
        """An address space that holds no board."""
        found = self.doctor(before=("sh", "-c", 'ulimit -v 2000000; exec "$@"', "sh"))
        self.found(found, "warning", "address space", "ulimit -v unlimited")
        found = self.doctor(before=("sh", "-c", 'ulimit -v 300000; exec "$@"', "sh"), code=1)
        self.found(found, "problem", "ResourceExhausted", "warnings above")

    def test_two_programs(self) -> None:
        """Another tpuboard on the PATH."""
        (self.folder / "tpuboard").write_text("#!/bin/sh\n", encoding="utf-8")
        (self.folder / "tpuboard").chmod(0o755)
        found = self.doctor(PATH=f"{self.folder}:{os.environ['PATH']}")
        self.found(found, "warning", "another tpuboard is on the PATH")

    def test_packages(self) -> None:
        """Packages that do not go together."""
        version = self.run_command("--version").stdout.split()[1]
        python = self.fake_python(packages={"tpuboard": version, "jax-tpuboard": version, "jax": "0.5.0",
                                            "jaxlib": "0.5.0", "torch": "2.9.1", "torch-xla": "2.8.0",
                                            "libtpu": "0.0.30"}, plugins=["jax-cuda12-plugin", "tpuboard"])
        found = self.doctor("--python", python, code=1)
        self.found(found, "problem", "have the same files", "pip uninstall jax-tpuboard tpuboard")
        self.found(found, "warning", "jax 0.5.0", "0.6.2")
        self.found(found, "warning", "torch 2.9.1, torch-xla 2.8.0", self.torch_pair())
        self.found(found, "warning", "libtpu 0.0.30", "uninstall libtpu")
        self.found(found, "note", "jax-cuda12-plugin")
        one = self.doctor("--python", self.fake_python(packages={"jax": "0.5.0"}))  # code 0: all else works
        self.found(one, "warning", "no jaxlib")
        other = self.doctor("--python", self.fake_python(version=[3, 9, 2], packages={"tpuboard": "99.1"}))
        self.found(other, "warning", "3.9.2", "3.10")
        self.found(other, "warning", "tpuboard 99.1", version)
        none = self.doctor("--python", self.fake_python(packages={"torch": "2.9.1"}))
        self.found(none, "note", "no torch_xla", self.torch_pair())
        self.found(none, "note", "not installed", "/opt/python -m pip install jax")
        self.assertFalse([found for found in [*found, *none] if "tpuboard[" in found["advice"]], "an index may have it")

    def torch_pair(self) -> str:
        """The extra of the package, as an advice."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return f"/opt/python -m pip install {' '.join(project['optional-dependencies']['torch'])} "

    def test_python(self) -> None:
        """Pythons that say nothing."""
        self.found(self.doctor("--python", "/nowhere/python"), "note", "cannot be started")
        self.found(self.doctor("--python", "/bin/false"), "warning", "cannot list its packages")
        self.found(self.doctor("--python", "/bin/echo"), "warning", "printed no list")
        self.found(self.doctor("--python", sys.executable), "note", "")

    def test_a_python_that_does_not_end(self) -> None:
        """It is killed, whether or not it has printed its list."""
        printed = Path(self.fake_python())
        silent = self.folder / "silent"
        shutil.copy(printed, silent)
        for program, before in ((printed, printed.read_text(encoding="utf-8")), (silent, "#!/bin/sh\n")):
            program.write_text(before + "exec >/dev/null sleep 1000\n", encoding="utf-8")
        with ThreadPoolExecutor() as pool:  # both wait for ten seconds
            for findings in pool.map(lambda program: self.doctor("--python", str(program)), (printed, silent)):
                self.found(findings, "warning", "did not list its packages within 10 s", "--python")

    def test_modules_of_the_working_folder(self) -> None:
        """Others may write to it; none of them runs."""
        for name in ("json", "re"):
            (self.folder / f"{name}.py").write_text("open('ran', 'w').close()\nraise SystemExit(9)\n", encoding="utf-8")
        self.doctor("--python", sys.executable)
        self.assertFalse((self.folder / "ran").exists())

    def test_a_package_in_any_folder(self) -> None:
        """`pip install --target` takes any folder: the program of its grandparent's name is not its Python."""
        package = self.folder / "app/deps/tpuboard"
        (package / "bin").mkdir(parents=True)
        (package / "_library.py").touch()
        shutil.copy(TPUBOARD, package / "bin/tpuboard")
        (self.folder / "bin").mkdir()
        program = self.folder / "bin/app"
        program.write_text(f"#!/bin/sh\ntouch {self.folder}/ran\n", encoding="utf-8")
        program.chmod(0o755)
        done = subprocess.run([package / "bin/tpuboard", "doctor"], text=True, capture_output=True, check=False,
                              env=self.variables | {"PATH": f"{program.parent}:{self.variables['PATH']}"}, timeout=100)
        self.assertIn("of a wheel", done.stdout)
        self.assertFalse((self.folder / "ran").exists(), done.stdout)


class Demo(Case):
    """What the demo lacks is said; sim_scripts/demo and the wheel's test run it."""

    def fails(self, code: int, text: str, *words: str) -> None:
        """Exit code and error."""
        done = self.run_command("demo", *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)

    def test_errors(self) -> None:
        """Digits, Python, folders and words."""
        self.fails(1, f"expected images.npy and labels.npy in {self.folder}", "--data", str(self.folder))
        self.fails(2, "mlp alone", "--jax", "--model", "convnet")
        self.fails(2, "--model", "--model", "resnet")
        self.fails(2, "--jax", "--python", "python3")
        for name in ("images.npy", "labels.npy"):
            (self.folder / name).touch()
        (self.folder / "none").write_text(textwrap.dedent("""\
            #!/bin/sh
            exit 3
            """), encoding="utf-8")
        (self.folder / "none").chmod(0o755)
        data = ("--data", str(self.folder))
        self.fails(1, "has no JAX", "--jax", "--python", str(self.folder / "none"), *data)
        (self.folder / "jax").mkdir()  # as in the examples
        wrapper = self.folder / "bare"
        wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n', encoding="utf-8")
        wrapper.chmod(0o755)
        self.fails(1, "has no JAX", "--jax", "--python", str(wrapper), *data)
        self.fails(1, "cannot be started", "--jax", "--python", "/nowhere/python", *data)
        self.fails(1, "labels.npy", "--out", str(self.folder / "labels.npy/out"), *data)
        self.fails(1, "images.npy", *data)

    def test_a_configuration_that_was_changed(self) -> None:
        """It is kept. One that the demo wrote is replaced: the next error is that of the digits."""
        for name in ("images.npy", "labels.npy"):
            (self.folder / name).touch()
        words = ("--data", str(self.folder), "--out", "results")
        self.fails(1, "images.npy", *words)
        self.fails(1, "images.npy", "--model", "convnet", *words)
        configuration = self.folder / "results/train.toml"
        written = configuration.read_text(encoding="utf-8")
        configuration.write_text(written.replace("seed = 1", "seed = 2"), encoding="utf-8")
        self.fails(1, "train.toml: expected a file as this version of the command writes it", *words)
        self.assertIn("seed = 2", configuration.read_text(encoding="utf-8"))
        configuration.write_text(written, encoding="utf-8")
        self.fails(1, "images.npy", *words)


class Examples(Case):
    """The copy belongs to the user, and nothing is replaced."""

    def test_the_copy_is_whole_and_runs(self) -> None:
        """Every file, with the same bytes; the command that is named next works."""
        done = self.run_command("examples", "made/here")
        self.assertEqual(done.returncode, 0, done.stderr)
        copied = self.folder / "made/here/examples"
        tracked = [path for path in (ROOT / "examples").rglob("*")
                   if path.is_file() and "__pycache__" not in path.parts]
        found = [path for path in copied.rglob("*") if path.is_file()]
        self.assertEqual({path.relative_to(copied) for path in found},
                         {path.relative_to(ROOT / "examples") for path in tracked})
        for path in tracked:
            copy = copied / path.relative_to(ROOT / "examples")
            self.assertEqual(copy.read_bytes(), path.read_bytes(), copy)
        self.assertEqual([path.name for path in copied.parent.iterdir()], ["examples"])
        self.assertIn(f"== made/here/examples: {len(found)} files", done.stdout)
        words = done.stdout.splitlines()[-1].split()
        self.assertEqual(words[:2], ["==", "next:"])
        self.assertEqual((words[2], words[3]), (TPUBOARD, "run"))
        ran = self.run_command(*words[3:])
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("train_step: ", ran.stdout)

    def test_a_copy_in_the_examples(self) -> None:
        """It has what was there before it alone."""
        program, examples = self.folder / "own/bin/tpuboard", self.folder / "own/share/tpuboard/examples"
        program.parent.mkdir(parents=True)
        shutil.copy(TPUBOARD, program)
        (examples / "model").mkdir(parents=True)
        for name in ("README.md", "model/train.py"):
            (examples / name).touch()
        for where in (examples, examples / "model/mine"):
            subprocess.run([program, "examples", where], env=self.variables, check=True, capture_output=True)
        self.assertEqual({str(path.relative_to(examples / "examples"))
                          for path in (examples / "examples").rglob("*")}, {"README.md", "model", "model/train.py"})
        second = examples / "model/mine/examples"
        self.assertEqual({str(path.relative_to(second)) for path in second.iterdir()},
                         {"README.md", "model", "examples"})
        self.assertEqual([path.name for path in (second / "model").iterdir()], ["train.py"])

    def test_a_full_disk(self) -> None:
        """A limit of file sizes stands for it: the place is named, and nothing stays there."""
        done = self.run_command("examples", "full", before=("sh", "-c", 'ulimit -f 8; exec "$0" "$@"'))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, r"tpuboard: FailedPrecondition: full: /\S+ cannot be copied to it: "
                                      "File too large; name another DIR")
        self.assertEqual(list((self.folder / "full").iterdir()), [])

    def test_what_is_there_stays(self) -> None:
        """A folder, a file or a link of the name; a place where no folder can be made."""
        self.assertEqual(self.run_command("examples", ".").returncode, 0)
        changed = self.folder / "examples/README.md"
        changed.write_text("mine", encoding="utf-8")
        for name in ("file", "link"):
            (self.folder / name).mkdir()
        (self.folder / "file/examples").touch()
        (self.folder / "link/examples").symlink_to("nowhere")
        for name in (".", "file", "link"):
            done = self.run_command("examples", name)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(f"{name}/examples: exists already, and nothing in it is replaced; name another DIR, or "
                          "remove it first", done.stderr)
        self.assertEqual(changed.read_text(encoding="utf-8"), "mine")
        self.assertEqual(len(list((self.folder / "file").iterdir())), 1)
        for words, code in ((("examples/README.md",), 1), ((), 2), (("",), 2)):
            self.assertEqual(self.run_command("examples", *words).returncode, code, words)


if __name__ == "__main__":
    unittest.main()
