"""abi_test.py notices what breaks an interface and what adds to it, and knows which version that needs."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from abi_test import RECORD, ROOT, SKIPPED, c_dump, class_layouts, compare_c, compare_cpp, enough

HEADER = "tpu/tpu.h"
# Of tpu.h: text, its replacement, and what the change is.
CHANGES = [
    ("", "", ""),
    ("const char* tpu_version(void);", "", "broken"),
    ("const char* tpu_version(void);", "int tpu_version(void);", "broken"),
    ("  TPU_CANCELLED = 5,", "  TPU_CANCELLED = 15,", "broken"),
    ("const char* tpu_version(void);", "const char* tpu_version(void);\nint tpu_one_more(int x);", "new"),
]
VERSIONS = [  # change, version of the record, version: enough?
    ("", "0.1.0", "0.1.0", True), ("new", "0.1.0", "0.1.0", False), ("new", "0.1.0", "0.1.1", True),
    ("broken", "0.1.0", "0.1.9", False), ("broken", "0.1.0", "0.2.0", True), ("new", "1.1.0", "1.1.1", False),
    ("new", "1.1.0", "1.2.0", True), ("broken", "1.1.0", "1.2.0", False), ("broken", "1.1.0", "2.0.0", True),
]
DUMP = """<abi-corpus><abi-instr><namespace-decl name='tpu'><namespace-decl name='driver'>
<class-decl name='Board' size-in-bits='64'><data-member access='private' layout-offset-in-bits='0'>
<var-decl name='state_'/></data-member></class-decl><class-decl name='Other' size-in-bits='8'/>
</namespace-decl></namespace-decl></abi-instr></abi-corpus>"""


def main() -> int:
    """Prints what is not noticed."""
    if shutil.which("abidw") is None:
        print("abi: abidw is missing: sim_scripts/setup --tests")
        return SKIPPED
    errors = []
    text = (ROOT / "c_api/include" / HEADER).read_text("utf-8")
    for old, new, expected in CHANGES:
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            (work / "tpu").mkdir()
            if old not in text:
                errors.append(f"{HEADER} does not have '{old}', which this test replaces")
            (work / HEADER).write_text(text.replace(old, new, 1) if old else text, "utf-8")
            found, report = compare_c(work, c_dump(work, work))
            if found != expected:
                errors.append(f"'{old}' as '{new}' is '{found}', expected '{expected}':\n{report}")
    for change, recorded, now, expected in VERSIONS:
        if enough(change, *(tuple(map(int, each.split("."))) for each in (recorded, now))) != expected:
            errors.append(f"{change} from {recorded} to {now}: expected {expected}")
    if class_layouts(DUMP, {"Board"}) != ["class tpu::driver::Board 64 state_@0"]:
        errors.append(f"layouts: {class_layouts(DUMP, {'Board'})}")
    record = RECORD["cpp"].read_text("utf-8")
    lines = record.splitlines(keepends=True)
    for dump, expected in ((record, ""), (record + "symbol more\n", "new"), ("".join(lines[1:]), "broken")):
        if compare_cpp(dump)[0] != expected:
            errors.append(f"C++: {compare_cpp(dump)[0]}, expected {expected}")
    print("\n".join(errors) if errors else "changes of the interfaces are noticed")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
