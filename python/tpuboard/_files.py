"""Files that are written as a whole."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

_LONGEST_NAME = 255


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Replaces a file in one step: on an error the old one stays as it was, and two writers do not mix.

    What a link points to is replaced, not the link; devices and pipes are written to as they are.

    Raises:
        OSError: it cannot be written.
    """
    target = Path(path).resolve()
    try:
        found = target.stat()
    except FileNotFoundError:
        found = None
    if found is not None and not stat.S_ISREG(found.st_mode):
        target.write_bytes(data)  # of a folder: IsADirectoryError
        return
    if found is not None and not os.access(target, os.W_OK):
        raise PermissionError(13, os.strerror(13), str(path))
    end = f".{secrets.token_hex(8)}.part"
    part = target.with_name(target.name[:_LONGEST_NAME - len(end)] + end)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if found is not None:
                os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
            file.write(data)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
