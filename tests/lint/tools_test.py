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
import tomllib
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

    def keep(self, script: str) -> None:
        """Removes checks that name pages of the real tree."""
        for path in (self.root / "tests/lint").iterdir():
            if path.name not in (Path(script).name, "sources.py"):
                path.unlink()

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


class OptionNames(Tree):
    SCRIPT = "tests/lint/option_names_test.py"

    def setUp(self) -> None:
        super().setUp()
        self.write("spec/sim/options.toml", '[[option]]\nname = "waves"\nvariable = "WAVES"\nmembers = ["sim.waves_path"]\n')

    def say(self, literal: str, path: str = "tlm_model/waves/waves.cpp") -> None:
        self.write(path, f'const char* text = "{literal}";  // --waves\n')

    def test_fields_and_commands_pass(self) -> None:
        self.say("SimOptions::waves_path w: OpenOptions::factory, --other; tpuboard run p --waves w")
        self.passes(self.SCRIPT)

    def test_names_of_another_place_are_refused(self) -> None:
        for name in ("--waves", "TPUBOARD_WAVES"):
            self.say(f"add {name} FILE")
            self.fails(f"waves\\.cpp: .* names {name}; name the field", self.SCRIPT)
        self.say("add --waves FILE", "host_driver/cli/options.cpp")
        self.write("tlm_model/waves/waves.cpp", "")
        self.passes(self.SCRIPT)

    def test_fields_that_do_not_exist_are_refused(self) -> None:
        self.say("set SimOptions::wave_path")
        self.fails("has no SimOptions::wave_path", self.SCRIPT)


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

    def test_an_edge_between_rooms_of_the_driver(self) -> None:
        self.write("host_driver/src/rings/ring.hpp", "#pragma once\n")
        self.write("host_driver/src/board/board_impl.hpp", "#pragma once\n")
        self.include("host_driver/src/operations/send.cpp", "src/rings/ring.hpp")
        self.include("host_driver/src/api.cpp", "src/board/board_impl.hpp")
        self.passes(self.SCRIPT)
        self.include("host_driver/src/rings/ring.cpp", "src/board/board_impl.hpp")
        self.fails(r"src/rings/ring\.cpp: rings/ may not include host_driver/src/board/board_impl\.hpp", self.SCRIPT)
        self.include("host_driver/src/rings/ring.cpp", "src/rings/ring.hpp")
        self.include("host_driver/src/attic/old.cpp", "src/rings/ring.hpp")
        self.fails("host_driver/src/attic is not known", self.SCRIPT)

    def test_a_header_without_its_folder(self) -> None:
        self.include("compiler/ir/graph.cpp", "graph.hpp")
        self.fails("includes graph.hpp without its folder", self.SCRIPT)

    def test_a_name_of_two_headers(self) -> None:
        self.write("compiler/passes/part.hpp", "#pragma once\n")
        self.write("compiler/vpu/passes/part.hpp", "#pragma once\n")
        self.include("compiler/ir/graph.cpp", "passes/part.hpp")
        self.fails("passes/part.hpp may be any of compiler/passes/part.hpp, compiler/vpu/passes/part.hpp", self.SCRIPT)


class Classes(Tree):
    SCRIPT = "tests/lint/classes_test.py"
    LIST = "tests/lint/classes.toml"

    def setUp(self) -> None:
        super().setUp()
        self.write(self.LIST, "")

    def declare(self, methods: int) -> None:
        declared = "".join(f"  virtual const std::vector<int>& m{i}(int a = f(1)) const {{ return {{}}; }}\n"
                           for i in range(methods))
        self.write("client/big.hpp", f"""// class Not {{ void a(); }};
class Big final : public Base<int> {{
 public:
  explicit Big(int a) : a_(a) {{}}
  ~Big();
  Big(const Big&) = delete;
  Big& operator=(const Big&) = delete;
{declared} private:
  struct Inner {{ void own(); }};
  using Hook = std::function<void(int)>;
  std::function<void(int)> hook_;
  std::mutex mutex_;  // guards (all)
  int a_ = f(2);
}};
""")

    def define(self, files: int) -> None:
        for i in range(files):
            self.write(f"client/big_{i}.cpp", f"const int* Big::m{i}(int a) const {{\n  return Other::m();\n}}\n")

    def test_a_class_of_the_largest_size_passes(self) -> None:
        self.declare(40)
        self.define(3)
        self.passes(self.SCRIPT)

    def test_too_many_methods(self) -> None:
        self.declare(41)
        self.fails("client/Big: 41 methods, expected at most 40", self.SCRIPT)

    def test_too_many_files(self) -> None:
        self.declare(4)
        self.define(4)
        self.fails("client/Big: 4 files, expected at most 3", self.SCRIPT)

    def test_the_list_only_shrinks(self) -> None:
        self.declare(50)
        self.define(4)
        self.write(self.LIST, '["client/Big"]\nmethods = 50\nfiles = 4\n')
        self.passes(self.SCRIPT)
        self.declare(51)
        self.fails("client/Big: 51 methods, expected at most 50", self.SCRIPT)
        self.declare(49)
        self.fails("client/Big has 49 methods, the list says 50; lower it to 49", self.SCRIPT)
        self.declare(40)
        self.fails("client/Big has 40 methods, the list says 50; remove it", self.SCRIPT)
        self.write(self.LIST, '["client/Gone"]\nmethods = 50\n')
        self.fails("there is no class client/Gone; remove it", self.SCRIPT)


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
        self.keep(script)
        self.write("docs/a.md", "[b](b.md) `spec/x.toml` [far](https://example.org/no)\n")
        self.fails(r"docs/a\.md: dead link b\.md", script)
        self.write("docs/b.md", "[a](a.md)\n")
        self.fails(r"docs/a\.md: names spec/x\.toml, which does not exist", script)
        self.write("spec/x.toml", "")
        self.passes(script)

    def test_headings_and_pages_that_sources_name(self) -> None:
        script = "tests/lint/links_test.py"
        self.keep(script)
        self.write("docs/a.md", "# Two `words`, a [link](b.md)\n## Part\n## Part\n```\n# Code\n```\n[b](#part-1)\n")
        self.write("docs/b.md", "[a](a.md#two-words-a-link)\n")
        self.write("spec/a.hpp", "// docs/a.md#part, docs/b.md.\n")
        self.passes(script)
        self.write("docs/b.md", "[a](a.md#code)\n")
        self.fails(r"docs/b\.md: dead link a\.md#code: the page has no such heading", script)
        self.write("docs/b.md", "")
        self.write("spec/a.hpp", "\n// docs/a.md#whole\n")
        self.fails(r"spec/a\.hpp:2: names docs/a\.md#whole: the page has no such heading", script)
        self.write("spec/a.hpp", "// docs/c.md\n")
        self.fails(r"spec/a\.hpp:1: names docs/c\.md, which does not exist", script)

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


class Prose(Tree):
    SCRIPT = "tests/lint/prose_test.py"

    def setUp(self) -> None:
        super().setUp()
        self.copy("docs/style.md")
        self.pending()

    def pending(self, **names: str) -> None:
        """Rules as they are, with other pages that are not yet rewritten."""
        rules = (LINT / "prose.toml").read_text(encoding="utf-8").split("[pending]\n")[0]
        lists = [f"{rule} = [{names.get(rule, '')}]\n" for rule in ("columns", "lines", "idioms")]
        self.write("tests/lint/prose.toml", rules + "[pending]\n" + "".join(lists))

    def test_columns_and_length(self) -> None:
        self.write("docs/a.md", f"{'word ' * 24}\n[a]: https://example.org/{'x' * 120}\n")
        self.passes(self.SCRIPT)
        self.write("docs/a.md", f"```asm\n{'word ' * 25}\n```\n")
        self.passes(self.SCRIPT)
        self.write("docs/a.md", f"{'word ' * 25}\n")
        self.fails(r"docs/a\.md:1: 125 columns, expected at most 120", self.SCRIPT)
        self.write("docs/a.md", "| " + "word " * 25 + "|\n")
        self.fails(r"docs/a\.md:1: 128 columns", self.SCRIPT)
        self.write("docs/a.md", "line\n" * 401)
        self.fails(r"docs/a\.md:401: 401 lines, expected at most 400; split the page", self.SCRIPT)

    def test_idioms_outside_of_code(self) -> None:
        self.write("docs/a.md", "There is no data. `is no` x\n```\nis none of\n```\n[a](law/put off.md)\n")
        self.passes(self.SCRIPT)
        self.write("docs/a.md", "# Title\n\nA tile is\nno program.\n")
        self.fails(r"docs/a\.md:3: 'is no ?': write: is not a; has no; invalid", self.SCRIPT)

    def test_idioms_in_texts_of_the_product(self) -> None:
        self.write("spec/a.cpp", '// is no comment\n#include "law"\nconst char* a = "law", b = \'"\';\n'
                                 '// "x is none of y"\nf("it is not", \n  "is no", \'"\');\n')
        self.write("tests/unit/a.cpp", 'f("it is no name");\n')
        self.passes(self.SCRIPT)
        self.write("spec/a.cpp", '\nf("{} is "\n  "no name");\n')
        self.fails(r"spec/a\.cpp:2: 'is no ' in \"\{\} is no name\": write: is not a; has no", self.SCRIPT)
        self.write("spec/a.cpp", 'f(R"(a law)");\n')
        self.fails(r"spec/a\.cpp:1: 'law' in \"a law\"", self.SCRIPT)

    def test_each_idiom_of_the_table(self) -> None:
        rules = tomllib.loads((self.root / "tests/lint/prose.toml").read_text(encoding="utf-8"))
        for idiom in rules["idiom"]:
            for words in re.sub(r" \([^)]*\)", "", idiom["not"]).split(", "):
                with self.subTest(words):
                    self.write("docs/a.md", f"It {words} them.\n")
                    self.fails(re.escape(f"write: {idiom['instead']}"), self.SCRIPT)
        page = (self.root / "docs/style.md").read_text(encoding="utf-8")
        self.write("docs/a.md", "")
        self.write("docs/style.md", page.replace("| alike |", "| similar |"))
        self.fails(r"docs/style\.md: has no row '\| alike \| identical; the same \|'", self.SCRIPT)

    def test_pages_that_are_not_yet_rewritten(self) -> None:
        self.write("docs/a.md", "It is alike.\n")
        self.pending(idioms='"docs/a.md"')
        self.passes(self.SCRIPT)
        self.write("docs/a.md", "It is the same.\n")
        self.fails(r"docs/a\.md: follows the rule now; take it off pending\.idioms", self.SCRIPT)
        self.pending(columns='"docs/b.md"')
        self.fails(r"pending\.columns names docs/b\.md, which does not exist", self.SCRIPT)

    def test_former_words_in_old_records(self) -> None:
        self.write("docs/adr/0065-a.md", "# 65. A\n\nA law.\n")
        self.passes(self.SCRIPT)
        self.write("docs/adr/0065-a.md", "# 65. A law\n")
        self.fails(r"docs/adr/0065-a\.md:1: 'law'", self.SCRIPT)
        self.write("docs/adr/0065-a.md", "# 65. A\n")
        self.write("docs/adr/0066-b.md", "# 66. B\n\nA law.\n")
        self.fails(r"docs/adr/0066-b\.md:3: 'law'", self.SCRIPT)

    def test_long_lines_are_wrapped_and_nothing_else(self) -> None:
        script, long = "sim_scripts/wrap.py", "word " * 22
        self.copy(script)
        kept = f"# {long}{long}\n\nshort\nlines\n\n| {long}{long} |\n\n```\n{long}{long}\n```\n"
        self.write("a.md", f"{kept}- {long}`a code span` - 3) and more\n  of it\n1. next\n")
        self.passes(script, "a.md")
        self.assertEqual((self.root / "a.md").read_text(encoding="utf-8"),
                         f"{kept}- {long.strip()}\n  `a code span` - 3) and more of it\n1. next\n")
        self.write("a.md", f"{long}12345678 - 3) x\n")
        self.passes(script, "a.md")
        self.assertEqual((self.root / "a.md").read_text(encoding="utf-8"), f"{long.strip()}\n12345678 - 3) x\n")


class Records(Tree):
    SCRIPT = "tests/lint/adr_test.py"

    def setUp(self) -> None:
        super().setUp()
        self.keep(self.SCRIPT)
        self.write("docs/adr/0001-first.md", "# 1. The first\n")
        self.write("docs/adr/0002-second.md", "# 2. The second\n")
        self.entries = ["- [1. The first](0001-first.md)", "- [2. The\n  second](0002-second.md)"]
        self.index()

    def index(self, *more: str) -> None:
        self.write("docs/adr/README.md", "\n".join([*self.entries, *more]) + "\n")

    def test_numbers_and_headings(self) -> None:
        self.passes(self.SCRIPT)
        self.write("docs/adr/0002-again.md", "# 2. Again\n")
        self.fails("0002-second.md: 0002-again.md has the same number; take the next free one", self.SCRIPT)
        (self.root / "docs/adr/0002-again.md").unlink()
        self.write("docs/adr/0001-first.md", "# 2. The first\n")
        self.fails(r"0001-first\.md: expected the heading '# 1\. Title'", self.SCRIPT)
        self.write("docs/adr/0001-first.md", "# 1. The first\n")
        self.write("docs/adr/third.md", "# 3. The third\n")
        self.fails(r"third\.md: expected a name such as 0007-short-title\.md", self.SCRIPT)

    def test_the_index_has_each_record_once(self) -> None:
        self.index(self.entries[0])
        self.fails("lists 1 2 times, expected once", self.SCRIPT)
        self.entries = self.entries[:1]
        self.index()
        self.fails(r"lists 2 0 times, expected once: add \[2\. The second\]\(0002-second\.md\)", self.SCRIPT)
        self.index("- [2. The last](0002-second.md)")
        self.fails(r"the entry '2\. The last' \(0002-second\.md\) differs from the record", self.SCRIPT)

    def test_references_in_pages_and_comments(self) -> None:
        self.write("spec/a.hpp", "// ADR 2, ADRs 1 and 2, docs/adr/0001-first.md, docs/adr/0002.\n")
        self.passes(self.SCRIPT)
        self.write("spec/a.hpp", "\n// ADR 3\n")
        self.fails(r"spec/a\.hpp:2: ADR 3 does not exist", self.SCRIPT)
        self.write("spec/a.hpp", "// ADRs 1, 2 and 4\n")
        self.fails("ADR 4 does not exist", self.SCRIPT)
        self.write("spec/a.hpp", "// docs/adr/0002-first.md\n")
        self.fails(r"docs/adr/0002-first does not exist; its name is 0002-second\.md", self.SCRIPT)
        self.write("spec/a.hpp", "")
        self.write("docs/a.md", "[x](adr/0003-third.md)\n")
        self.fails(r"docs/a\.md:1: docs/adr/0003-third does not exist", self.SCRIPT)


class Commits(Tree):
    SCRIPT = "tests/lint/commits_test.py"
    GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")

    def commit(self, message: str, lines: int = 1) -> None:
        self.count += 1
        self.write("spec/a.txt", f"{self.count}\n" * lines)
        self.command("git", "add", ".")
        self.command(*self.GIT, "commit", "--quiet", "--no-verify", "-m", message)

    def setUp(self) -> None:
        super().setUp()
        self.count = 0
        self.command(*self.GIT, "init", "--quiet")
        self.commit("start")
        self.base = self.command("git", "rev-parse", "HEAD").strip()

    def test_faults_of_a_message(self) -> None:
        for message, lines, expected in (
                ("add a file", 1, "expected 'area: summary'"),
                ("spec, docs: add a file", 1, "expected 'area: summary'"),
                ("spec: adds a file", 1, "expected a verb in the imperative, in lower case, found 'adds'"),
                ("spec: Add a file", 1, "found 'Add'"),
                ("spec: the files of a board", 1, "found 'the'"),
                ("spec: added a file", 1, "found 'added'"),
                ("spec: add a file.", 1, "ends with a period"),
                ("spec: add " + "x" * 63, 1, "has 73 columns; expected at most 72"),
                ("spec: add a file\nwith two lines", 1, "expected an empty line after the headline"),
                ("spec: add a file", 30, "has 31 lines and the message has no body")):
            with self.subTest(message):
                self.commit("spec: add a file", 1)
                base = self.command("git", "rev-parse", "HEAD").strip()
                self.commit(message, lines)
                self.fails(expected, self.SCRIPT, base)

    def test_good_messages_and_few_faults(self) -> None:
        for message in ("spec: add a file", "spec/board: process files", "README: embed a picture",
                        "spec: pass on words\n\nWhy.", "Revert \"x\"\n\nThis reverts y."):
            self.commit(message)
        self.commit("spec: add a file\n\nIt has more than 20 lines.", 30)
        self.passes(self.SCRIPT, self.base)
        for _ in range(12):
            self.commit("spec: add a file\n\nWhy.")
        self.commit("spec: adds a file")
        code, text = self.script(self.SCRIPT, self.base)
        self.assertEqual(code, 1, text)
        self.assertIn("18 of 19 follow", text)
        self.commit("spec: add a file\n\nWhy.")
        self.passes(self.SCRIPT, self.base)

    def test_a_clone_without_the_history(self) -> None:
        code, text = self.script(self.SCRIPT)
        self.assertEqual((code, "skipped: HEAD has no ancestor" in text), (77, True), text)

    def test_the_hook_that_setup_installs(self) -> None:
        self.copy("sim_scripts/setup", "sim_scripts/hooks/commit-msg")
        self.command("sim_scripts/setup", "--hooks")
        self.assertEqual(self.command("git", "config", "core.hooksPath").strip(), "sim_scripts/hooks")
        commit = (*self.GIT, "commit", "--quiet", "-m")
        self.command("git", "add", ".")
        bad = subprocess.run([*commit, "spec: adds files"], capture_output=True, text=True, check=False, cwd=self.root)
        self.assertEqual(bad.returncode, 1, bad.stderr)
        self.assertIn("commit-msg: expected a verb in the imperative, in lower case, found 'adds'", bad.stderr)
        self.assertIn("lines and the message has no body", bad.stderr)
        self.command(*commit, "sim_scripts: add hooks\n\nThey check messages.")
        self.command("git", "config", "core.hooksPath", "hooks")
        other = subprocess.run(["sim_scripts/setup", "--hooks"], capture_output=True, text=True, check=False,
                               cwd=self.root)
        self.assertEqual(other.returncode, 1)
        self.assertIn("core.hooksPath is 'hooks', expected it unset", other.stderr)


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
