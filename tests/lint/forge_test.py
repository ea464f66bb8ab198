"""Dockerfile and forge workflow name only what the tree has. Neither runs here: both need a service of their own."""

from __future__ import annotations

import json
import os
import re
import sys

from sources import ROOT

COPIED = re.compile(r"^COPY (\S+) \S+$", re.MULTILINE)
STAGE = re.compile(r"[-,]from=([\w-]+)")
RUN_STEP = re.compile(r"^\s*- run: (\S+)$", re.MULTILINE)


def main() -> int:
    """Prints what does not exist."""
    docker = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    entry, words = (json.loads(re.search(rf"^{name} (\[.*\])$", docker, re.MULTILINE).group(1))
                    for name in ("ENTRYPOINT", "CMD"))
    paths = [*COPIED.findall(docker), re.search(r"^RUN (\S+/\S+)", docker, re.MULTILINE).group(1),
             *re.findall(r"python3 (\S+\.py)", docker), *RUN_STEP.findall(workflow)]
    errors = [f"{path} is not in the tree" for path in paths if not (ROOT / path).exists()]
    errors += [f"{path} cannot be run" for path in RUN_STEP.findall(workflow)
               if not os.access(ROOT / path, os.X_OK)]
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
    known = {preset["name"] for preset in presets["workflowPresets"]}
    errors += [f"preset {name} is not in CMakePresets.json" for name in re.findall(r"--preset (\S+)", docker)
               if name not in known]
    errors += [f"no stage {name}" for name in STAGE.findall(docker) if f" AS {name}\n" not in docker]
    if f"install(TARGETS {entry[0]} " not in (ROOT / "cli/CMakeLists.txt").read_text(encoding="utf-8"):
        errors.append(f"{entry[0]} is not installed")
    command = (ROOT / f"cli/command_{words[0]}.cpp").read_text(encoding="utf-8")
    errors += [f"{words[0]} has no option {word}" for word in words
               if word.startswith("--") and f'"{word}"' not in command]
    if ".ci/run" not in RUN_STEP.findall(workflow):
        errors.append(".github/workflows/ci.yml does not call .ci/run")
    print("\n".join(errors) if errors else "Dockerfile and workflow name what is there")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
