"""Dockerfile and forge workflow name only what the tree has. Neither runs here: both need a service of their own."""

from __future__ import annotations

import json
import os
import re
import sys

from sources import ROOT

COPIED = re.compile(r"^COPY (\S+) \S+$", re.MULTILINE)
RUN_STEP = re.compile(r"^\s*- run: (\S+)$", re.MULTILINE)


def main() -> int:
    """Prints what does not exist."""
    docker = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", docker, re.MULTILINE).group(1))
    paths = [*COPIED.findall(docker), re.search(r"^RUN (\S+/\S+)", docker, re.MULTILINE).group(1), entry[0],
             *RUN_STEP.findall(workflow)]
    errors = [f"{path} is not in the tree" for path in paths if not (ROOT / path).exists()]
    errors += [f"{path} cannot be run" for path in [entry[0], *RUN_STEP.findall(workflow)]
               if not os.access(ROOT / path, os.X_OK)]
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
    known = {preset["name"] for preset in presets["workflowPresets"]}
    errors += [f"preset {name} is not in CMakePresets.json" for name in re.findall(r"--preset (\S+)", docker)
               if name not in known]
    demo = (ROOT / entry[0]).read_text(encoding="utf-8")
    errors += [f"{entry[0]} has no switch {word}" for word in entry[1:]
               if word.startswith("--") and f"{word})" not in demo]
    if ".ci/run" not in RUN_STEP.findall(workflow):
        errors.append(".github/workflows/ci.yml does not call .ci/run")
    print("\n".join(errors) if errors else "Dockerfile and workflow name what is there")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
