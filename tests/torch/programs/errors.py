"""Bad input: variables that contradict each other, types and shapes that the board does not have, too much memory.

Each case is a program of its own: it must end, and say what is wrong.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
import unittest

# What torch_xla imports: the children have it already.
import functorch.compile  # noqa: F401
import networkx  # noqa: F401
import requests  # noqa: F401
import torch  # noqa: F401
import torch._inductor.lowering  # noqa: F401

HEAD = """
import torch, torch_xla
import torch_xla.core.xla_model as xm
device = xm.xla_device()
"""
WITHOUT_PACKAGE = """
import pathlib, sys
sys.path[:] = [path for path in sys.path if not any(pathlib.Path(path).glob("tpuboard-*.dist-info"))]
"""
SPAWN = "import torch_xla.distributed.xla_multiprocessing as xmp\nxmp.spawn(print)"
OTHER = "/opt/other/libtpu.so"


def run(program: str, **variables: str | None) -> tuple[int, str]:
    """In a child: Python's time to import all that torch_xla needs is spent once."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            for name, value in variables.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            code = 0
            try:
                exec(compile(program, "<case>", "exec"), {})
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        return code, output.read().decode(errors="replace")


class Errors(unittest.TestCase):
    """One program each."""

    def fails(self, program: str, *words: str, **variables: str | None) -> None:
        code, text = run(program, **variables)
        self.assertEqual(code, 1, text)  # an exception: neither a signal nor an abort
        for word in words:
            self.assertIn(word, text)

    def works(self, program: str, **variables: str | None) -> None:
        code, text = run(program, **variables)
        self.assertEqual(code, 0, text)

    def test_ways_to_the_board(self) -> None:
        library = os.environ["TPU_LIBRARY_PATH"]
        check = HEAD + "assert xm.xla_device_hw(device) == 'TPU'\nassert (torch.ones(2, device=device) + 1).sum() == 4"
        self.works(check)
        self.works(check, PJRT_DEVICE="TPU")
        self.works(check, PJRT_DEVICE="TPUBOARD")
        self.works("import tpuboard._torch\n" + check)
        for board in ("v2_8", "v3_32"):
            kind = board.replace("_", "-")
            self.works(check + f"\nimport os\nassert os.environ['TPU_ACCELERATOR_TYPE'] == '{kind}'",
                       TPUBOARD_BOARD=board)
        self.works(check + "\nassert len(xm.get_xla_supported_devices()) == 2", TPU_VISIBLE_CHIPS="0",
                   TPU_CHIPS_PER_PROCESS_BOUNDS="1,1,1", TPUBOARD_SET="board.chips=1;board.torus_x=1")
        self.works(check + "\nassert len(xm.get_xla_supported_devices()) == 4", TPU_VISIBLE_CHIPS="2,3",
                   TPU_CHIPS_PER_PROCESS_BOUNDS="2,1,1", TPU_PROCESS_BOUNDS="1,1,1")
        self.works(check + "\nimport os\nassert os.environ['TPUBOARD_SET'] == 'board.chips=2;board.torus_x=1'",
                   TPU_VISIBLE_CHIPS="0,2", TPU_CHIPS_PER_PROCESS_BOUNDS="1,2", TPU_PROCESS_BOUNDS="1,1",
                   TPUBOARD_BOARD="v3_8")
        self.works(check, PJRT_DEVICE="LIBRARY", PJRT_LIBRARY_PATH=library, TPU_LIBRARY_PATH=None)
        self.works("import os, torch_xla\nos.chdir('/')\n" + check, TPU_LIBRARY_PATH=os.path.relpath(library))
        self.works("import torch_xla\nfrom torch_xla._internal import tpu\nassert tpu.num_available_devices() == 8")
        # Processes of a later spawn: this one is the only one.
        self.works(check, TPUBOARD_PROCESS_COUNT="4")
        # Without the package: what torch_xla does by itself.
        self.works(WITHOUT_PACKAGE + check + "\nassert 'tpuboard' not in sys.modules", PJRT_DEVICE="TPU",
                   TPU_SKIP_MDS_QUERY="1", TPU_ACCELERATOR_TYPE="v3-8", TPU_WORKER_ID="0")

    def test_other_devices_are_left_alone(self) -> None:
        self.works(HEAD + "assert xm.xla_device_hw(device) == 'CPU'", PJRT_DEVICE="CPU")
        self.works("import torch_xla\nfrom torch_xla._internal import tpu\n"
                   f"assert tpu.TpuPlugin().library_path() == '{OTHER}'", PJRT_DEVICE="TPU", TPU_LIBRARY_PATH=OTHER)
        self.works("import os, torch_xla\nassert os.environ['PJRT_DEVICE'] == 'CPU'", TPU_LIBRARY_PATH=OTHER)

    def test_another_version(self) -> None:
        """A name that moved is an error in words, for those who select the board."""
        program = ("import torch_xla, torch_xla.core.xla_model as xm, tpuboard._torch as plugin\n"
                   "del xm.all_gather\nplugin.Plugin()")
        self.fails(program, "tpuboard knows PyTorch/XLA 2.5 to 2.9; this is")
        self.works(program, PJRT_DEVICE="CPU")

    def test_variables_that_contradict(self) -> None:
        self.fails("import torch_xla", "PJRT_DEVICE=TPUBOARD selects the board", OTHER, "take TPU_LIBRARY_PATH away",
                   PJRT_DEVICE="TPUBOARD", TPU_LIBRARY_PATH=OTHER)
        self.fails("import torch_xla", "name different libraries", PJRT_DEVICE="LIBRARY",
                   PJRT_LIBRARY_PATH="/opt/a/libtpuboard_pjrt.so", TPU_LIBRARY_PATH="/opt/b/libtpuboard_pjrt.so")
        self.fails("import torch_xla", "does not exist", "Then start Python again",
                   TPU_LIBRARY_PATH="/opt/none/libtpuboard_pjrt.so")
        self.fails("import torch_xla", "TPUBOARD_PROCESS_COUNT=four: expected 1, 2, 4 or 8",
                   TPUBOARD_PROCESS_COUNT="four")
        self.fails(SPAWN, "one of several already", TPUBOARD_PROCESS_ID="0", TPUBOARD_PROCESS_COUNT="2")
        # The board's own check of the variables of the real machine.
        self.fails(HEAD, "TPU_VISIBLE_CHIPS is 3; process 1 of 4", TPU_PROCESS_BOUNDS="2,2,1",
                   CLOUD_TPU_TASK_ID="1", TPU_VISIBLE_CHIPS="3", TPU_CHIPS_PER_PROCESS_BOUNDS="1,1,1")
        # Chips that are no board, or not of the shape that another variable says.
        self.fails("import torch_xla", "TPU_VISIBLE_CHIPS=0,3 asks for a part of the board", TPU_VISIBLE_CHIPS="0,3")
        self.fails("import torch_xla", "TPU_CHIPS_PER_PROCESS_BOUNDS=1,2,1: expected 2,1,1", TPU_VISIBLE_CHIPS="0,1",
                   TPU_CHIPS_PER_PROCESS_BOUNDS="1,2,1")
        self.fails("import torch_xla", "name different chips", TPU_VISIBLE_CHIPS="0,1", TPU_VISIBLE_DEVICES="0")
        self.fails("import torch_xla", "asks for a part of a v3-8", TPU_VISIBLE_CHIPS="0,1", TPUBOARD_BOARD="v2_8")

    def test_torchrun(self) -> None:
        """As one of its processes; each has one core."""
        process = {"TORCHELASTIC_RUN_ID": "1", "LOCAL_RANK": "0"}
        self.fails(SPAWN, "in a process of torchrun", "call the function without xmp.spawn", LOCAL_WORLD_SIZE="8",
                   **process)
        self.fails("import torch_xla", "is set without LOCAL_RANK and LOCAL_WORLD_SIZE: start the program by torchrun",
                   TORCHELASTIC_RUN_ID="1", LOCAL_RANK=None, LOCAL_WORLD_SIZE=None)
        self.fails("import torch_xla, torch.distributed as dist\nfrom torch_xla.distributed import xla_backend\n"
                   "dist.init_process_group('xla', init_method='xla://')",
                   "torchrun with 4 processes: each would have 2 cores", "expected --nproc-per-node=8",
                   LOCAL_WORLD_SIZE="4", **process)

    def test_fork_after_a_device_was_used(self) -> None:
        self.fails(HEAD + "import os, sys\nx = torch.ones(2, device=device).cpu()\nchild = os.fork()\n"
                   "if child == 0:\n    print((torch.ones(3, device=device) * 5).cpu())\n"
                   "else:\n    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
                   "this process was forked from the one that opened the board", "spawn, not fork")

    def test_types(self) -> None:
        self.fails(HEAD + "print(torch.ones(3, dtype=torch.float16).to(device) * 2)", "f16")
        self.fails(HEAD + "print(torch.ones(3, dtype=torch.complex128).to(device) * 2)", "complex128")

    def test_dynamic_shape(self) -> None:
        program = HEAD + "x = torch.tensor([1.0, 0.0, 2.0], device=device)\nprint(torch.nonzero(x) + 1)"
        self.works(program)  # on the host, as torch_xla does by default
        self.fails(program, "dynamic shapes are not supported", XLA_EXPERIMENTAL="nonzero:masked_select")
        # Its scatter ends at a size that is known at run time only; the result has the shape of x.
        self.works(HEAD + "x = torch.arange(24.0).view(2, 3, 4)\nsource = -torch.arange(1.0, 13.0)\n"
                   "for mask in (x % 2 == 0, x > 100, x[:, :1] > 3):\n"
                   "    found = x.to(device).masked_scatter(mask.to(device), source.to(device))\n"
                   "    assert torch.equal(found.cpu(), x.masked_scatter(mask, source)), found")

    def test_memory(self) -> None:
        # Each core has 16 GiB.
        program = HEAD + "x = torch.zeros(5, 1 << 30, device=device)\ntorch_xla.sync()\nprint(x[0, 0].item())"
        self.fails(program, "GiB", "HBM")


if __name__ == "__main__":
    unittest.main()
