"""pages_test.py and page_options_test.py notice what they are for, on small pages."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import page_options_test
from pages_test import is_close, mark_errors, run_page

# A page, and a part of what is wrong with it ("": nothing).
PAGES = [
    ("```sh\necho one two\n```\n\n<!-- run: output -->\n```\none ...\n```\n", ""),
    ("```sh\necho one\n```\n\n<!-- run: output -->\n```\ntwo\n```\n", "does not print 'two'"),
    ("```sh\nprintf 'b\\na\\n'\n```\n\n<!-- run: output -->\n```\na\nb\n```\n", "does not print 'b'"),
    ("```sh\nfalse\necho one\n```\n", "these commands fail"),
    ("```sh\nfalse | cat\n```\n", "these commands fail"),
    ("<!-- run: fails -->\n```sh\ntrue\n```\n", "the page says that they fail"),
    ("<!-- run: fails -->\n```sh\nfalse\n```\n", ""),
    ("<!-- run: no, REASON -->\n```sh\nfalse\n```\n\n```sh\ntrue\n```\n", ""),
    ("<!-- run: no -->\n```sh\nfalse\n```\n", "expected 'run: no, REASON'"),
    ("```\nfalse\n```\n", "expected 'run: no, REASON'"),
    ("<!-- run: file a.txt -->\n```\nin a\n```\n\n```sh\ncat a.txt\n```\n\n<!-- run: output -->\n```\nin a\n```\n", ""),
    ("```sh\nexport A=1\n```\n\n```sh\necho \"A is $A\"\n```\n\n<!-- run: output -->\n```\nA is 1\n```\n", ""),
    ("```sh\necho 68654 cycles, 1\n```\n\n<!-- run: output -->\n```\n68... cycles...\n```\n", ""),
    ("```sh\necho 68654 cycles, 1\n```\n\n<!-- run: output -->\n```\n68655 cycles...\n```\n", "does not print '68655"),
    ("```sh\necho in 1 s\n```\n\n<!-- run: output -->\n```\n...1 s...\n```\n", ""),
    ("```sh\necho in 31 s\n```\n\n<!-- run: output -->\n```\n...1 s...\n```\n", "does not print '...1 s...'"),
    ("```sh\necho in 3.1 s\n```\n\n<!-- run: output -->\n```\n...1 s...\n```\n", "does not print '...1 s...'"),
    ("<!-- run: no, REASON -->\n\n```sh\ntrue\n```\n\n<!-- run: text -->\n```\na\n```\n", "not the line in front of"),
    ("```sh\ntrue\n```\n\n<!-- run: fails -->\n\nText.\n", "not the line in front of a block"),
    ("```sh\ntrue\n```\n\nText about `<!-- run: text -->`.\n", ""),
    ("No block.\n", "has no commands"),
    ("<!-- run: no, REASON -->\n```sh\nfalse\n```\n", "the reason has to name the test"),
    ("<!-- run: no, the test python.wheel does it -->\n```sh\nfalse\n```\n", ""),
    ("<!-- run: no, the test e2e.unknown does it -->\n```sh\nfalse\n```\n", "there is no test e2e.unknown"),
    ("- item\n\n  ```sh\n  false\n  ```\n", "these commands fail"),
    ("- item\n\n  <!-- run: fails -->\n  ```sh\n  false\n  ```\n", ""),
    ("- item\n\n  ```\n  false\n  ```\n", "expected 'run: no, REASON'"),
    ("```sh title\nfalse\n```\n\n```sh\ntrue\n```\n", "expected 'run: no, REASON'"),
    ("~~~sh\nfalse\n~~~\n", "these commands fail"),
    ("```sh\ntrue\n```\n\n  ```sh\nfalse\n```\n", "without its other end"),
    ("```sh\ntrue\n```\n\nThen:\n\n    false\n", "code by indentation"),
    ("<!-- run: file a/b.txt -->\n```\nin b\n```\n\n```sh\ncat a/b.txt\n```\n", ""),
]
LINES = [("a 100.0 us", "a  101.5 us", True), ("a 100.0 us", "a 103.0 us", False), ("a 100 us", "a 101 us", False),
         ("a 1.0", "b 1.0", False), ("a 1.0", "a", False), ("f32[8.0]", "f30[8.0]", False), ("v1.99", "v1.98", False),
         ("1.7e-01", "1.71e-01", True), ("1.7e-01", "1.7e-02", False)]
COMMANDS = [  # text, and the commands in it
    ("```\nX=1 build/release/bin/tpuc a.mlirbc \\\n  -o b --cores 1   # 8\n```\n",
     [("tpuc", "a.mlirbc    -o b --cores 1")]),
    ("`tpuboard run X --no-data`, `--check`", [("tpuboard", "run X --no-data")]),
    ("```python\ntpuboard.board()\n```\n", []),
]


def main() -> int:
    """Prints what is not noticed."""
    errors = []
    for text, expected in PAGES:
        with tempfile.TemporaryDirectory() as name:
            page = Path(name) / "page.md"
            page.write_text(text, "utf-8")
            found = run_page(page, Path(name))
            if bool(found) != bool(expected) or (expected and expected not in found[0]):
                errors.append(f"{text!r}: {found}, expected '{expected}'")
    errors += [f"'{one}' and '{other}': expected {expected}" for one, other, expected in LINES
               if is_close(one, other) != expected]
    found = mark_errors({Path("/nowhere.md")})
    if not found[0].startswith("/nowhere.md: ") or not any("no test runs this page" in each for each in found):
        errors.append(f"a page that no test runs, and one of nowhere: {found}")
    errors += [f"{text!r}: {page_options_test.commands(text)}, expected {expected}" for text, expected in COMMANDS
               if page_options_test.commands(text) != expected]
    print("\n".join(errors) if errors else "faults of pages are noticed")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
