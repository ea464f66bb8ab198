"""A TPU node for programs of TensorFlow: python -m tpuboard.tpu_worker [--port 8470]

The board is in this process, which needs the package tensorflow-tpu. Programs are other processes with the same version
of TensorFlow, for which tensorflow-cpu is enough. They find the node by TPU_NAME, as the printed line sets it, with
`TPUClusterResolver(tpu="")`. The node serves one program after the other until it is interrupted. TensorFlow's server
listens on all addresses of the host: whoever reaches the port can run code as the user of the node.
`tpuboard tpu-worker` runs this module.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

from ._library import NAME, library_path

PORT = 8470  # of Cloud TPU nodes
# Without them TensorFlow waits for ever for a node that was not started or is gone, at the latest when it exits.
PROGRAM_VARIABLES = "GRPC_FAIL_FAST=true TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE=false"
HOST = "127.0.0.1"
ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}  # the node


def fail(text: str) -> NoReturn:
    sys.exit(f"tpu_worker: {text}")


def port_number(text: str) -> int:
    """For argparse."""
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"found {port}, expected 0 to 65535")
    return port


def check_port(port: int) -> None:
    """TensorFlow shares the port of another server without a word, and fails for others without advice."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            fail(f"port {port}: {error.strerror}; name another one with --port")


def existing_library() -> Path:
    """Without links and relative parts: TensorFlow loads it later."""
    library = library_path()
    if not library.exists():
        fail(f"{library} does not exist; TPU_LIBRARY_PATH has to name a built {NAME}, or be unset after "
             "`pip install .`")
    return library.resolve()


def import_tensorflow() -> Any:
    """TensorFlow with its TPU runtime, which loads the library that TPU_LIBRARY_PATH names."""
    try:
        import tensorflow as tf
        from tensorflow.python.framework import kernels
    except ImportError as error:
        fail(f"{error}; install tensorflow-tpu (docs/tensorflow.md)")
    if not kernels.get_registered_kernels_for_op("TPUExecute").kernel:
        fail(f"found TensorFlow {tf.__version__} without its TPU runtime, expected the package tensorflow-tpu "
             "(docs/tensorflow.md)")
    return tf


def check_lowering(folder: Path, version: str) -> None:
    """What each graph of a program would fail with; once, at the start. `folder`: of the board's library."""
    path = folder / f"libtpuboard_tf-{'.'.join(version.split('.')[:2])}.so"
    advice = ("build it with -DTPU_TENSORFLOW=ENVIRONMENT, where ENVIRONMENT is that of this Python "
              "(docs/tensorflow.md)")
    if not path.exists():
        fail(f"{path}: no such file, expected the library that lowers graphs of TensorFlow {version}; {advice}")
    try:
        version_of = ctypes.CDLL(str(path)).tpuboard_tf_version
    except (OSError, AttributeError) as error:
        fail(f"{path}: not a library that lowers graphs of TensorFlow {version}: {error}; {advice}")
    version_of.restype = ctypes.c_char_p
    built_for = version_of().decode()
    if built_for != version:
        fail(f"{path} is for TensorFlow {built_for}, found TensorFlow {version}; install tensorflow-tpu=={built_for}, "
             f"or {advice}")


def serve(tf: Any, port: int) -> Any:
    """The server, which runs; for 0 it chooses the port itself."""
    cluster = tf.train.ClusterSpec({"worker": [f"{HOST}:{port}"]})
    try:
        return tf.distribute.Server(cluster, job_name="worker", task_index=0, protocol="grpc")
    except tf.errors.OpError as error:
        fail(f"port {port}: TensorFlow's server cannot start: {error.message}; name another one with --port")


def run_node(port: int, library: Path) -> None:
    """The node, in a thread that blocks no signals: those of TensorFlow and the children of all inherit that. Does not
    return; a failure ends the process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    try:
        tf = import_tensorflow()
        check_lowering(library.parent, tf.__version__)
        server = serve(tf, port)
        port = int(server.target.rpartition(":")[2])
        print(f"tpu_worker: port {port} is open on all addresses of this host; who reaches it can run code as you",
              file=sys.stderr)
        print(f"export TPU_NAME=grpc://{HOST}:{port} {PROGRAM_VARIABLES}", flush=True)
        threading.Event().wait()
    except BaseException as error:
        print(error if isinstance(error, SystemExit) else traceback.format_exc(), file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)


def end_by(number: int) -> None:
    """This process ends as one that has no handlers."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def main() -> None:
    """Does not return."""
    parser = argparse.ArgumentParser(prog="python -m tpuboard.tpu_worker", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=port_number, default=PORT,
                        help=f"of the node; 0: any free one (default: {PORT})")
    port = parser.parse_args().port
    check_port(port)
    library = existing_library()
    os.environ["TPU_LIBRARY_PATH"] = str(library)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    ends = ENDS if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else ENDS - {signal.SIGHUP}  # nohup
    # TensorFlow takes SIGTERM when a program connects, and does not end. Linux gives a signal of the process to its
    # first thread where that one waits for it, although others do not block it.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    threading.Thread(target=run_node, args=(port, library), daemon=True).start()
    end_by(signal.sigwait(ends))


if __name__ == "__main__":
    main()
