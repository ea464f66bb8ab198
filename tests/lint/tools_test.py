"""Each check of the source tree notices the faults that it is for: run over small trees that have one.

A tree is an empty folder with the script in its own place and the files that a test writes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINT = ROOT / "tests/lint"


class Tree(unittest.TestCase):
    """A tree in a temporary folder."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        shutil.copytree(LINT, self.root / "tests/lint", ignore=shutil.ignore_patterns("__pycache__"))

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def copy(self, *names: str) -> None:
        for name in names:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)

    def command(self, *words: str) -> str:
        """What a command that must pass prints."""
        return subprocess.run(words, check=True, capture_output=True, text=True, cwd=self.root).stdout

    def script(self, name: str, *words: str) -> tuple[int, str]:
        settings = {key: value for key, value in os.environ.items() if key != "TPU_TIDY_BASE"}
        done = subprocess.run([sys.executable, str(self.root / name), *words], capture_output=True, text=True,
                              check=False, cwd=self.root, env=settings)
        return done.returncode, done.stdout + done.stderr

    def passes(self, name: str, *words: str) -> None:
        code, text = self.script(name, *words)
        self.assertEqual(code, 0, text)

    def fails(self, expected: str, name: str, *words: str) -> None:
        code, text = self.script(name, *words)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, expected)


class Layering(Tree):
    SCRIPT = "tests/lint/layering_test.py"

    def setUp(self) -> None:
        super().setUp()
        for header in ("spec/arith/bf16.hpp", "tlm_model/core/core.hpp", "tlm_model/hart/hart.hpp",
                       "compiler/ir/graph.hpp", "compiler/emit/emit.hpp"):
            self.write(header, "#pragma once\n")

    def include(self, source: str, header: str) -> None:
        self.write(source, f'#include "{header}"\n')

    def test_allowed_edges_pass(self) -> None:
        self.include("compiler/emit/emit.cpp", "ir/graph.hpp")
        self.include("tlm_model/core/core.cpp", "arith/bf16.hpp")
        self.passes(self.SCRIPT)

    def test_an_edge_between_top_folders(self) -> None:
        self.include("compiler/ir/graph.cpp", "core/core.hpp")
        self.fails(r"compiler/ir/graph\.cpp: may not include core/core\.hpp of tlm_model/", self.SCRIPT)

    def test_one_header_and_no_more(self) -> None:
        self.write("tlm_model/mxu/mxu_replay.hpp", "#pragma once\n")
        self.include("host_driver/cli/command_replay.cpp", "mxu/mxu_replay.hpp")
        self.passes(self.SCRIPT)
        self.include("host_driver/cli/command_run.cpp", "core/core.hpp")
        self.fails(r"command_run\.cpp: may not include core/core\.hpp of tlm_model/", self.SCRIPT)

    def test_one_folder_and_no_more(self) -> None:
        self.write("host_driver/files/npy.hpp", "#pragma once\n")
        self.write("host_driver/cli/options.hpp", "#pragma once\n")
        self.include("training/loop/dataset.cpp", "files/npy.hpp")
        self.passes(self.SCRIPT)
        self.include("training/loop/trainer.cpp", "cli/options.hpp")
        self.fails(r"trainer\.cpp: may not include cli/options\.hpp of host_driver/", self.SCRIPT)

    def test_an_edge_between_blocks(self) -> None:
        self.include("tlm_model/hart/hart.cpp", "core/core.hpp")
        self.fails(r"tlm_model/hart/hart\.cpp: hart/ may not include", self.SCRIPT)

    def test_an_edge_between_rooms(self) -> None:
        self.include("compiler/ir/graph.cpp", "emit/emit.hpp")
        self.fails(r"compiler/ir/graph\.cpp: ir/ may not include", self.SCRIPT)

    def test_an_unknown_room(self) -> None:
        self.include("compiler/attic/old.cpp", "ir/graph.hpp")
        self.fails("compiler/attic is not known", self.SCRIPT)

    def test_a_header_without_its_folder(self) -> None:
        self.include("compiler/ir/graph.cpp", "graph.hpp")
        self.fails("includes graph.hpp without its folder", self.SCRIPT)

    def test_a_name_of_two_headers(self) -> None:
        self.write("compiler/passes/part.hpp", "#pragma once\n")
        self.write("compiler/vpu/passes/part.hpp", "#pragma once\n")
        self.include("compiler/ir/graph.cpp", "passes/part.hpp")
        self.fails("passes/part.hpp may be any of compiler/passes/part.hpp, compiler/vpu/passes/part.hpp", self.SCRIPT)


class JoinedNames(Tree):
    SCRIPT = "tests/lint/joined_names_test.py"

    def anonymous(self, name: str, text: str) -> None:
        self.write(f"spec/part/{name}.cpp", f"namespace {{\n{text}}}  // namespace\n")

    def test_functions_types_and_constants(self) -> None:
        self.anonymous("a", "int twice(const Box<int, 2>& box, int step = 1) {\n  return 2;\n}\nstruct Part {\n};\n")
        self.anonymous("b", "int twice(int step) {\n  return 3;\n}\nstruct Other {\n};\nconstexpr int kPart = 1;\n")
        self.passes(self.SCRIPT)
        self.anonymous("c", "int twice(const Box<int, 2>& place,\n          int by) { return 2; }\n")
        self.fails(r"spec/part: a\.cpp and c\.cpp both have twice\(const Box<int, 2>&, int\)", self.SCRIPT)
        self.anonymous("c", "class Part : public Whole {\n};\n")
        self.fails(r"a\.cpp and c\.cpp both have Part", self.SCRIPT)
        self.anonymous("c", "constexpr std::array<int, 2> kPart = {1, 2};\n")
        self.fails(r"b\.cpp and c\.cpp both have kPart", self.SCRIPT)
        self.write("spec/part/CMakeLists.txt", "set_source_files_properties(c.cpp PROPERTIES COMPILE_OPTIONS -O3)\n")
        self.passes(self.SCRIPT)


class Pages(Tree):
    def test_dead_links_and_paths(self) -> None:
        script = "tests/lint/links_test.py"
        self.write("docs/a.md", "[b](b.md) `spec/x.toml` [far](https://example.org/no)\n")
        self.fails(r"docs/a\.md: dead link b\.md", script)
        self.write("docs/b.md", "[a](a.md#part)\n")
        self.fails(r"docs/a\.md: names spec/x\.toml, which does not exist", script)
        self.write("spec/x.toml", "")
        self.passes(script)

    def test_operations_without_a_row_and_rows_without_an_operation(self) -> None:
        script = "tests/lint/operations_test.py"
        self.copy("compiler/ir/op_kinds.hpp", "docs/operations.md")
        self.passes(script)
        page, kinds = self.root / "docs/operations.md", self.root / "compiler/ir/op_kinds.hpp"
        text = page.read_text(encoding="utf-8")
        self.write("docs/operations.md", text.replace("`tanh`", "`tanhh`"))
        self.fails("names tanhh, which the compiler does not know", script)
        self.write("docs/operations.md", text)
        self.write("compiler/ir/op_kinds.hpp", kinds.read_text(encoding="utf-8") + '// X(kNew, "brand_new", 1)\n')
        self.fails("does not name brand_new", script)

    def test_forge_files_that_name_what_is_not_there(self) -> None:
        script = "tests/lint/forge_test.py"
        self.copy("Dockerfile", ".github/workflows/ci.yml", "CMakePresets.json", ".ci/run", "sim_scripts/setup",
                  "sim_scripts/demo")
        self.passes(script)
        docker = (self.root / "Dockerfile").read_text(encoding="utf-8")
        self.write("Dockerfile", docker.replace("--preset release", "--preset fastest"))
        self.fails("preset fastest is not in CMakePresets.json", script)
        self.write("Dockerfile", docker)
        (self.root / ".ci/run").chmod(0o644)
        self.fails(r"\.ci/run cannot be run", script)


class Format(Tree):
    def test_layout_and_long_comments(self) -> None:
        script, program = "tests/lint/format_test.py", shutil.which("clang-format")
        assert program is not None
        self.copy(".clang-format")
        self.write("spec/a.cpp", "int a = 1;\n")
        self.passes(script, program)
        self.write("spec/a.cpp", "int  a=1;\n")
        self.fails(r"not formatted: .*spec/a\.cpp", script, program)
        self.write("spec/a.cpp", f"// {'long ' * 25}\nint a = 1;\n")
        self.fails(r"spec/a\.cpp:1: a comment of more than 100 columns", script, program)
        self.write("spec/a.cpp", 'void a() { fmt::print("a"); }\n')
        self.passes(script, program)
        self.write("training/a.cpp", 'void a() { fmt::print("a"); }\n')
        self.fails(r"training/a\.cpp:1: fmt::print; use spec::print", script, program)


class Database(Tree):
    """Scripts that read compile_commands.json."""

    def database(self, *sources: str) -> None:
        entries = [{"directory": str(self.root), "file": str(self.root / name),
                    "command": f"g++ -std=c++20 -I{self.root}/spec -c {self.root / name} -o a.o"} for name in sources]
        self.write("build/ci/compile_commands.json", json.dumps(entries))

    def test_tidy_looks_at_changed_lines_only(self) -> None:
        script = "tests/lint/tidy.py"
        git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
        self.copy(".clang-tidy")
        self.write(".gitignore", "build/\n")
        self.write("build/ci/build.ninja",
                   "rule CUSTOM_COMMAND\n  command = touch $out\nbuild made.h: CUSTOM_COMMAND\n")
        self.write("spec/a.cpp", "int* a = 0;\n")
        self.database("spec/a.cpp")
        self.command(*git, "init", "--quiet")
        self.command("git", "add", ".")
        self.command(*git, "commit", "--quiet", "-m", "a")
        code, text = self.script(script, "--build", "build/ci")
        self.assertEqual((code, "skipped" in text), (77, True), text)
        self.write("spec/a.cpp", "int* a = 0;\nint b = 1;\n")
        self.command(*git, "commit", "--quiet", "-am", "b")
        self.passes(script, "--build", "build/ci")
        self.assertTrue((self.root / "build/ci/made.h").exists(), "headers are generated first")
        self.write("spec/a.cpp", "int* a = 0;\nint b = 1;\nint* c = 0;\n")
        self.fails(r"a\.cpp:3:.*modernize-use-nullptr", script, "--build", "build/ci")
        self.command(*git, "commit", "--quiet", "-am", "c")
        self.write("spec/b.cpp", "int d = 1;\n")
        self.command("git", "add", ".")
        self.command(*git, "commit", "--quiet", "-m", "d")
        self.fails(r"a\.cpp:3:", script, "--build", "build/ci")  # more than the last commit
        self.fails("0123456 is no commit of this clone", script, "--build", "build/ci", "--base", "0123456")
        self.fails(r"a\.cpp:1:.*modernize-use-nullptr", script, "--build", "build/ci", "--all")

    def test_header_cost_names_what_does_not_compile_alone(self) -> None:
        script = "sim_scripts/header_cost.py"
        self.copy(script)
        self.write("spec/good.hpp", "#include <cstdint>\ninline std::int8_t good = 1;\n")
        self.write("spec/bad.hpp", "inline std::int8_t bad = 1;\n")
        self.write("spec/a.cpp", '#include "good.hpp"\n')
        self.database("spec/a.cpp")
        self.passes(script, "--build", "build/ci", "--check")
        self.write("spec/a.cpp", '#include "good.hpp"\n#include "bad.hpp"\n')
        self.fails(r"spec/bad\.hpp: does not compile alone", script, "--build", "build/ci", "--check")
        code, text = self.script(script, "--build", "build/ci")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r" +[0-9.]+ +1 +[0-9.]+  spec/good\.hpp")

    def test_coverage_counts_lines_by_folder(self) -> None:
        script = "sim_scripts/coverage.py"
        self.copy(script)
        self.write("spec/arith/a.cpp", "int main(int n, char**) {\n  if (n > 1) {\n    return 1;\n  }\n}\n")
        (self.root / "build/ci").mkdir(parents=True)
        self.fails(r"has no \.gcda files", script, "--build", "build/ci")
        self.command("g++", "--coverage", "-O0", "spec/arith/a.cpp", "-o", "build/ci/a")
        self.command("build/ci/a")
        code, text = self.script(script, "--build", "build/ci", "--missing", "missing.txt")
        self.assertEqual(code, 0, text)
        self.assertEqual(re.findall(r"^(\S+) +(\d+) of +(\d+) lines", text, re.MULTILINE),
                         [("all", "3", "4"), ("spec/arith", "3", "4")], text)
        self.assertEqual((self.root / "missing.txt").read_text(encoding="utf-8"), "spec/arith/a.cpp:3-3\n")


if __name__ == "__main__":
    unittest.main()
