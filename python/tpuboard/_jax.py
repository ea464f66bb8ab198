"""What JAX calls when it looks for plugins (entry point group `jax_plugins`).

JAX has a backend named `tpu` of its own accord and takes its library from TPU_LIBRARY_PATH: to name ours there makes
the board that backend, without the warning that JAX gives for plugins which it does not know.
"""

from __future__ import annotations

import os
import warnings
from importlib import metadata

from ._library import library_path

FORMER = "jax-tpuboard"


def initialize() -> None:
    """Makes JAX's backend `tpu` the board, unless the user has named another library."""
    try:
        former = metadata.version(FORMER)
    except metadata.PackageNotFoundError:
        former = None
    if former is not None:
        warnings.warn(f"the packages tpuboard and {FORMER} {former}, its former name, have the same files: uninstall "
                      f"both, and install tpuboard again", stacklevel=2)
    os.environ.setdefault("TPU_LIBRARY_PATH", str(library_path()))
