"""What PyTorch/XLA loads while it is imported (entry point group `torch_xla.plugins`).

PyTorch/XLA has a device type TPU of its own, for libtpu. On a host without a TPU the board takes that place, as it does
for JAX: PJRT_DEVICE=TPU, or no variable at all, selects it. PJRT_DEVICE=TPUBOARD selects it on every host,
PJRT_DEVICE=LIBRARY with PJRT_LIBRARY_PATH as well. Nothing changes for other values of PJRT_DEVICE, nor if
TPU_LIBRARY_PATH names another library (docs/torch.md).
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ._library import NAME, library_path
from ._replicas import Replica, end_of_replicas

# PyTorch/XLA loads this module while it is imported. Where somebody imports this one first, that must be a whole one:
# it takes the place of this one.
_half = sys.modules.pop(__name__)
import torch_xla  # noqa: E402

sys.modules.setdefault(__name__, _half)
from torch_xla.experimental import plugins  # noqa: E402


def _accelerator_type(board: str) -> str:
    """That of a preset of the package; a file describes a board that has no such name."""
    return board.replace("_", "-") if re.fullmatch(r"v\d_\d+", board) else "v3-8"


# What PyTorch/XLA reads when it compiles or starts; a value that the user has set is kept.
_DEFAULTS = {
    "PJRT_DEVICE": "TPU",
    # Replicas of a process call Execute from this pool; on a host with few cores its default is less than eight.
    "XLA_THREAD_POOL_SIZE": "32",
    # Programs of more arguments would get them in one tuple.
    "XLA_PARAMETER_WRAPPING_THREADSHOLD": str(2**31 - 1),
    # What describes the host is taken from variables, not asked of a metadata server in the network.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": _accelerator_type(os.environ.get("TPUBOARD_BOARD", "")),
    "TPU_WORKER_ID": "0",
}
# On a real host these give a process a part of the board; the second is the older name of the first.
_VISIBLE = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
_BOUNDS = "TPU_CHIPS_PER_PROCESS_BOUNDS"
_ONE_PROCESS = ("", "1,1,1", "1,1")  # TPU_PROCESS_BOUNDS, as client/visible_chips.hpp reads it
# Shapes (x, y) of the chips of a v3-8, 0 and 1 in the first row, that are a rectangle.
_SHAPES = {(0, 1, 2, 3): (2, 2), (0, 1): (2, 1), (2, 3): (2, 1), (0, 2): (1, 2), (1, 3): (1, 2),
           (0,): (1, 1), (1,): (1, 1), (2,): (1, 1), (3,): (1, 1)}
_CHIPS, _CORES = 4, 8
_COUNT, _NUMBER, _FOLDER = "TPUBOARD_PROCESS_COUNT", "TPUBOARD_PROCESS_ID", "TPUBOARD_PROCESS_DIR"
# Processes of `xmp.spawn`: what the user's variable says (_set_up moves it here: a process that does not spawn is the
# only one), else what the call under way means.
_asked = ""
_meant = 1


class Plugin(plugins.DevicePlugin):  # type: ignore[misc]  # PyTorch/XLA has no types
    """The board as PyTorch/XLA starts it: processes that share it, each with a thread for each of its cores."""

    def __init__(self) -> None:
        super().__init__()
        try:
            if _is_selected():
                _set_up(self)
        except ValueError as error:
            # A second import in the same process finds PyTorch/XLA half initialized.
            raise ValueError(f"{error}. Then start Python again") from None

    def library_path(self) -> str:
        return str(library_path())

    def physical_chip_count(self) -> int:
        """Processes that `xmp.spawn` makes."""
        return int(_asked or _meant)

    def configure_single_process(self) -> None:
        """The process has the board."""
        os.environ.pop(_COUNT, None)
        os.environ.pop(_NUMBER, None)

    def configure_multiprocess(self, local_rank: int, local_world_size: int) -> None:
        """In a child: its place among the processes that share the board (docs/processes.md)."""
        if local_world_size == 1:
            self.configure_single_process()
            return
        os.environ[_NUMBER] = str(local_rank)
        os.environ[_COUNT] = str(local_world_size)
        # Those of torchrun have a parent in common, which may start them again. Another program in the same terminal
        # has a board of its own.
        start = f"spawn-{os.getppid()}-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        os.environ.setdefault(_FOLDER, f"{tempfile.gettempdir()}/tpuboard-{os.geteuid()}/{start}")

    def client_create_options(self) -> dict[str, Any]:
        return {"ml_framework_name": "PyTorch/XLA", "ml_framework_version": str(torch_xla.__version__)}


def _is_ours(path: str) -> bool:
    return Path(path).name == NAME


def _is_selected() -> bool:
    """Whether the user's variables mean the board. Raises ValueError if they contradict each other."""
    device, named = os.environ.get("PJRT_DEVICE"), os.environ.get("TPU_LIBRARY_PATH", "")
    other = named != "" and not _is_ours(named)
    if device == "TPUBOARD":
        if other:
            raise ValueError(f"PJRT_DEVICE=TPUBOARD selects the board, and TPU_LIBRARY_PATH={named} another library; "
                             f"take TPU_LIBRARY_PATH away, or let it name {NAME}")
        return True
    if device == "LIBRARY":
        library = os.environ.get("PJRT_LIBRARY_PATH", "")
        if _is_ours(library) and named != "" and Path(named).resolve() != Path(library).resolve():
            raise ValueError(f"PJRT_LIBRARY_PATH={library} and TPU_LIBRARY_PATH={named} name different libraries; "
                             "take one of them away")
        return _is_ours(library)
    if device not in (None, "TPU") or other:
        return False
    if named != "":
        return True
    from torch_xla._internal import tpu

    return bool(tpu.num_available_chips() == 0)


def _set_up(plugin: Plugin) -> None:
    """Variables, then what is changed in PyTorch/XLA. A version without one of these names fails here, in words, and
    only where the board is selected."""
    _set_variables(plugin)
    try:
        _change_names()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ImportError(f"tpuboard knows PyTorch/XLA 2.5 to 2.9; this is {torch_xla.__version__} ({error}); install "
                          "one of those, as `pip install '.[torch]'` does") from error


def _set_variables(plugin: Plugin) -> None:
    global _asked
    if os.environ.get("PJRT_DEVICE") == "LIBRARY":
        os.environ["TPU_LIBRARY_PATH"] = os.environ["PJRT_LIBRARY_PATH"]
        plugins.register_plugin("LIBRARY", plugin)
    library = library_path()
    if not library.exists():
        raise ValueError(f"{library} does not exist; TPU_LIBRARY_PATH has to name a built {NAME}, or be unset after "
                         "`pip install .`; `pip install -e .` does not install the library")
    os.environ["TPU_LIBRARY_PATH"] = str(library.resolve())  # the program, or a child of it, may change its folder
    # A process that was started as one of several: the plugin checks what these say (docs/processes.md).
    if os.environ.get("TPU_PROCESS_BOUNDS", "") in _ONE_PROCESS:
        _take_part()
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    if _NUMBER not in os.environ:
        _asked = os.environ.pop(_COUNT, "")
        if _asked not in ("", "1", "2", "4", "8"):
            raise ValueError(f"{_COUNT}={_asked}: expected 1, 2, 4 or 8, the numbers of processes that can share a "
                             "board")
        if "TORCHELASTIC_RUN_ID" in os.environ:
            # torchrun has started several. PyTorch/XLA says so in init_process_group; a device may be used before.
            missing = [name for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE") if name not in os.environ]
            if missing:
                raise ValueError(f"TORCHELASTIC_RUN_ID, which torchrun sets, is set without {' and '.join(missing)}: "
                                 "start the program by torchrun, or take the variable away")
            plugin.configure_multiprocess(int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]))


def _take_part() -> None:
    """What TPU_VISIBLE_CHIPS names: chips to lease of a worker's board, else a board of these chips alone. Raises
    ValueError."""
    named = {name: os.environ[name] for name in _VISIBLE if os.environ.get(name, "") != ""}
    bounds = os.environ.get(_BOUNDS, "")
    bounds += ",1" if re.fullmatch(r"\d+,\d+", bounds) else ""
    if len(set(named.values())) > 1:
        raise ValueError(" and ".join(f"{name}={value}" for name, value in named.items()) +
                         " name different chips; take one of them away")
    name, text = next(iter(named.items()), (_VISIBLE[0], ""))
    if _is_of_worker():
        if text != "":
            os.environ[_VISIBLE[0]] = text  # the plugin reads this one, and knows the worker's board
        return
    all_of = [("0,1,2,3", "2,2,1"), *([] if _is_whole() else [("0", "1,1,1")])]  # one of another size may have one chip
    if any(text in ("", chips) and bounds in ("", shape) for chips, shape in all_of):
        return
    what = f"{name}={text}" if text != "" else f"{_BOUNDS}={bounds}"
    smaller = 'choose a smaller board by TPUBOARD_SET, such as "board.cores_per_chip=1"'
    chips = _chips_of(text)
    shape = _SHAPES.get(chips)
    if text == "" or shape is None:
        raise ValueError(f"{what} asks for a part of the board; expected chips from 0 to 3 in {_VISIBLE[0]} that are a "
                         f"rectangle, as 0,1 or 0,2, and their shape in {_BOUNDS}, if it is set: take the variable "
                         f"away, or {smaller}")
    x, y = shape
    if bounds not in ("", f"{x},{y},1"):
        raise ValueError(f"{what} names {x} x {y} chips, {_BOUNDS}={bounds}: expected {x},{y},1; take one of them away")
    part = f"board.chips={x * y};board.torus_x={x}"
    if not _is_whole():
        raise ValueError(f"{what} asks for a part of a v3-8, and TPUBOARD_BOARD or TPUBOARD_SET for another board: "
                         f"take the variable away, or set TPUBOARD_SET={part}")
    os.environ["TPUBOARD_SET"] = part  # children share this board
    for name in (*named, _BOUNDS):
        os.environ.pop(name, None)


def _chips_of(text: str) -> tuple[int, ...]:
    """Empty: these are no numbers of chips."""
    return tuple(sorted(map(int, text.split(",")))) if re.fullmatch(r"\d(,\d)*", text) else ()


def _is_of_worker() -> bool:
    """Whether chips can be leased of the board (docs/serve.md)."""
    connect = os.environ.get("TPUBOARD_CONNECT", "")
    return connect.startswith(("unix:", "tcp:")) and "," not in connect


def _change_names() -> None:
    from torch_xla._internal import pjrt, tpu

    # Both entry points, `tpu` and ours, then give the same, in whatever order they are loaded.
    for method in ("library_path", "physical_chip_count", "configure_single_process", "configure_multiprocess",
                   "client_create_options"):
        setattr(tpu.TpuPlugin, method, getattr(Plugin, method))
    tpu.TpuPlugin.host_index = plugins.DevicePlugin.host_index
    if _is_whole():
        tpu.num_available_chips = lambda: _CHIPS  # programs ask for the number of devices before they spawn
    pjrt.spawn = _checked_spawn(pjrt.spawn)
    pjrt.initialize_multiprocess = _checked_cores(pjrt.initialize_multiprocess)
    _make_tokens_first()
    _keep_layouts_open()
    _restore_names()


def _is_whole() -> bool:
    """Whether the board is surely a v3-8. The size of another one is known when it is opened."""
    changes = ["TPUBOARD_SET", *(["TPUBOARD_CHIPS", _VISIBLE[0]] if _is_of_worker() else [])]
    return (os.environ.get("TPUBOARD_BOARD") or "v3_8") == "v3_8" and not any(map(os.environ.get, changes))


def _default_processes(nprocs: int) -> int:
    """nprocs=8 meant eight processes before PJRT: what the parent has made, such as a model, is not shared. A board of
    another size has threads, whose number says what nprocs can be."""
    return _CORES if nprocs == _CORES and _is_whole() else 1


def _checked_spawn(spawn: Callable[..., Any]) -> Callable[..., Any]:
    """`nprocs` may be the number of cores, which PyTorch/XLA 2.6 and later refuse; any other but 1 is an error, which
    2.5 only warns of. A replica that raises ends all of them."""

    @functools.wraps(spawn)
    def checked(fn: Callable[..., Any], nprocs: int | None = None, start_method: str = "spawn",
                args: tuple[Any, ...] = ()) -> Any:
        global _meant
        import torch_xla.runtime as xr

        if nprocs == 1 or xr.device_type() not in ("TPU", "TPUBOARD", "LIBRARY"):
            return spawn(fn, nprocs, start_method, args)
        if "TORCHELASTIC_RUN_ID" in os.environ:
            raise ValueError("xmp.spawn in a process of torchrun, which has started the replicas: call the function "
                             "without xmp.spawn, or start the program without torchrun")
        if _NUMBER in os.environ or os.environ.get("TPU_PROCESS_BOUNDS", "") not in _ONE_PROCESS:
            raise ValueError(f"xmp.spawn in a process that is one of several already: take {_NUMBER}, {_COUNT} and "
                             "TPU_PROCESS_BOUNDS away, or call the function without xmp.spawn")
        wanted = None if nprocs is None else int(nprocs)
        _meant = 1 if wanted is None else _default_processes(wanted)
        with tempfile.TemporaryDirectory(prefix="tpuboard-", ignore_cleanup_errors=True) as folder:
            # Of this call: the next one has a board of its own.
            own_folder = _FOLDER not in os.environ
            if own_folder:
                os.environ[_FOLDER] = folder
            try:
                with end_of_replicas(folder):
                    return spawn(Replica(fn, wanted, folder), None, start_method, args)
            finally:
                _meant = 1
                if own_folder:
                    del os.environ[_FOLDER]

    return checked


def _checked_cores(initialize: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """torchrun has one replica in a process; launches would wait for those of the other cores."""

    @functools.wraps(initialize)
    def checked(local_rank: int, local_world_size: int) -> None:
        initialize(local_rank, local_world_size)
        if "TORCHELASTIC_RUN_ID" in os.environ:
            import torch_xla.runtime as xr

            own, cores = xr.addressable_device_count(), xr.global_device_count()
            if own != 1:
                raise ValueError(f"torchrun with {local_world_size} processes: each would have {own} cores and use "
                                 f"one of them; expected --nproc-per-node={cores}, the cores of the board, or 1")
            xr._init_world_size_ordinal()  # numbers that Dynamo can trace, as in processes of xmp.spawn

    return checked


def _make_tokens_first() -> None:
    """PyTorch/XLA orders the collectives of a device by a token. The tokens are in a hash table without a lock, where
    the first collective of a device inserts an entry. Threads that insert together can lose an entry, whose reader then
    ends the process. So all entries are made before a replica runs. No entry is removed, and after that each thread
    changes the value of its own."""
    import torch_xla.core.xla_model as xm
    from torch_xla._internal import pjrt

    lock = threading.Lock()
    made = False

    def make_tokens() -> None:
        nonlocal made
        with lock:
            if not made:
                for device in xm.get_xla_supported_devices():
                    torch_xla._XLAC._set_all_reduce_token(str(device), None)
            made = True

    # What PyTorch/XLA calls before it starts threads of replicas (xmp.spawn, DataParallel), or in each of them.
    set_replication, start_threads = xm.set_replication, pjrt._initialize_single_process

    @functools.wraps(set_replication)
    def set_replication_with_tokens(*arguments: Any, **named: Any) -> Any:
        make_tokens()
        return set_replication(*arguments, **named)

    @functools.wraps(start_threads)
    def start_threads_with_tokens(*arguments: Any, **named: Any) -> Any:
        start_threads(*arguments, **named)
        make_tokens()

    xm.set_replication, pjrt._initialize_single_process = set_replication_with_tokens, start_threads_with_tokens


def _keep_layouts_open() -> None:
    """Arrays are row-major on every core: to pin layouts means nothing. With pinned layouts PyTorch/XLA makes
    all_gather a pad that differs by rank and an all-reduce, which is a different program on each core."""
    import torch_xla.core.xla_model as xm

    for name in ("all_gather", "reduce_scatter", "all_to_all"):
        function = getattr(xm, name)
        defaulted = [parameter.name for parameter in inspect.signature(function).parameters.values()
                     if parameter.default is not inspect.Parameter.empty]
        values = list(function.__defaults__)
        values[defaulted.index("pin_layout")] = False
        function.__defaults__ = tuple(values)
    # Dynamo can trace the one that is made of an all-reduce only.
    all_gather = xm.all_gather
    position = list(inspect.signature(all_gather).parameters).index("pin_layout")

    @functools.wraps(all_gather)
    def traceable_all_gather(*arguments: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling() and len(arguments) <= position:
            named.setdefault("pin_layout", True)
        return all_gather(*arguments, **named)

    xm.all_gather = traceable_all_gather


def _restore_names() -> None:
    """Names that PyTorch/XLA removed after 2.5 and that older programs use."""
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr

    def xrt_world_size(defval: int = 1) -> int:
        return int(xr.world_size())

    def get_ordinal(defval: int = 0) -> int:
        return int(xr.global_ordinal())

    for function in (xrt_world_size, get_ordinal):
        if not hasattr(xm, function.__name__):
            setattr(xm, function.__name__, function)
