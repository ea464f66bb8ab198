"""The checks of prose, links, decision records and commit messages notice the faults that they are for."""

from __future__ import annotations

import re
import subprocess
import tomllib
import unittest

from tree import LINT, Tree


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
                  "sim_scripts/fetch_mnist.py", "cli/CMakeLists.txt", "cli/command_demo.cpp")
        self.passes(script)
        docker = (self.root / "Dockerfile").read_text(encoding="utf-8")
        self.write("Dockerfile", docker.replace("--preset release", "--preset fastest"))
        self.fails("preset fastest is not in CMakePresets.json", script)
        self.write("Dockerfile", docker.replace(" AS build", " AS built"))
        self.fails("no stage build", script)
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


if __name__ == "__main__":
    unittest.main()
