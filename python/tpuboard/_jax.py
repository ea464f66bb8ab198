"""What JAX calls when it looks for plugins (entry point group `jax_plugins`).

JAX has a backend named `tpu` of its own accord and takes its library from TPU_LIBRARY_PATH: to name ours there makes
the board that backend, without the warning that JAX gives for plugins which it does not know.
"""

from __future__ import annotations

import os

from ._library import library_path


def initialize() -> None:
    """Makes JAX's backend `tpu` the board, unless the user has named another library."""
    os.environ.setdefault("TPU_LIBRARY_PATH", str(library_path()))
