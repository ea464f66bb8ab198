"""What the demonstrations of sim_scripts call before they run anything: noted instead of done."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import tempfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from unittest import mock

SCRIPTS = Path(__file__).resolve().parents[2] / "sim_scripts"


def check_calls(demo: str, library: str, expected: dict[tuple[str, ...], list[str]]) -> None:
    """`expected`: by arguments of the demonstration the programs that its setup calls, in their order.

    `library`: the name of the constant with the path of the library, without which the demonstration ends there.
    """
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(SCRIPTS))
    loader = SourceFileLoader(demo, str(SCRIPTS / demo))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(demo, loader))
    sys.modules[demo] = module
    loader.exec_module(module)
    for given, programs in expected.items():
        called: list[str] = []
        module.call = lambda what, command, log, called=called: called.append(Path(command[0]).name)
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SystemExit), \
                contextlib.redirect_stderr(io.StringIO()):
            setattr(module, library, "no/library")
            with mock.patch.object(sys, "argv", [demo, "--out", folder, *given]):
                module.main()
        assert called == programs, (given, called)
