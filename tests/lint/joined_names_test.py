"""Names in anonymous namespaces differ within a target: builds that join its sources see them all at once
(docs/adr/0018-unity-builds.md). A target is taken to be the sources below one CMakeLists.txt.

Looked at: functions with a body of the same name and parameter types, types, constants. Tests are never joined.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

from sources import ROOT, files

UNJOINED = {"tests", "benchmarks", "examples"}
# Sources with compile options of their own are compiled alone.
OWN_OPTIONS = re.compile(r"set_source_files_properties\(([^)]*?)\s+PROPERTIES\s+COMPILE_OPTIONS", re.DOTALL)
INSIDE = re.compile(r"^namespace \{\n(.*?)^\}  // namespace\n", re.DOTALL | re.MULTILINE)
FUNCTION = re.compile(r"^(?:\[\[\w+\]\] )?(?!return|using|namespace|//|#|\})[A-Za-z_][\w:<>,&*\s]*?[\s&*](\w+)"
                      r"\(([^;{}]*)\)(?: noexcept)? \{", re.MULTILINE)
TYPE = re.compile(r"^(?:struct|class|enum class|enum) (\w+)[^;\n]*\{", re.MULTILINE)
CONSTANT = re.compile(r"^(?:static )?(?:constexpr|const|thread_local) [^=;({]*?\b(\w+)(?:\[[^\]]*\])? ?[={]",
                      re.MULTILINE)


def types_of(parameters: str) -> str:
    """`const Box& from, int step = 1` -> `const Box&, int`."""
    parts, depth = [""], 0
    for letter in " ".join(parameters.split()):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return ", ".join(re.sub(r"(?<=[\w>&*]) \w+$", "", part.split("=")[0].strip()) for part in parts)


def names_of(text: str) -> set[str]:
    """What the anonymous namespaces of a source define."""
    inside = "".join(INSIDE.findall(text))
    functions = {f"{name}({types_of(parameters)})" for name, parameters in FUNCTION.findall(inside)}
    return functions | set(TYPE.findall(inside)) | set(CONSTANT.findall(inside))


def owner(path: Path) -> Path:
    """The nearest folder above a source that has a CMakeLists.txt; without any, its own."""
    return next((folder for folder in path.parents if ROOT in folder.parents and (folder / "CMakeLists.txt").is_file()),
                path.parent)


def alone(folder: Path) -> set[str]:
    """Names of the folder's sources that are never joined."""
    lists = folder / "CMakeLists.txt"
    text = lists.read_text(encoding="utf-8") if lists.is_file() else ""
    return {word for group in OWN_OPTIONS.findall(text) for word in group.split()}


def main() -> int:
    """Prints names that two sources of a target have."""
    owners: dict[tuple[Path, str], list[str]] = defaultdict(list)
    for path in files(".cpp"):
        folder = owner(path)
        if path.relative_to(ROOT).parts[0] not in UNJOINED and path.name not in alone(folder):
            for name in names_of(path.read_text(encoding="utf-8")):
                owners[folder, name].append(path.relative_to(folder).as_posix())
    errors = [f"{folder.relative_to(ROOT)}: {' and '.join(sources)} both have {name} in an anonymous namespace"
              for (folder, name), sources in sorted(owners.items()) if len(sources) > 1]
    print("\n".join(errors) if errors else f"joined names: {len(owners)}, all different within their targets")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
