"""A TPU node for programs of TensorFlow: python -m tpuboard.tpu_worker [--port 8470]

The board is in this process, which needs the package tensorflow-tpu. Programs are other processes with the same version
of TensorFlow, for which tensorflow-cpu is enough. They find the node by TPU_NAME, as the printed line sets it, with
`TPUClusterResolver(tpu="")`. The node serves one program after the other until it is interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from pathlib import Path

from ._library import NAME, library_path

PORT = 8470  # of Cloud TPU nodes
HOST = "127.0.0.1"


def free_port(wanted: int) -> int:
    """`wanted`, or for 0 any; exits with an error for one that is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            sys.exit(f"tpu_worker: port {wanted}: {error.strerror}; name another one with --port")
        port: int = probe.getsockname()[1]
        return port


def existing_library() -> Path:
    """Without links and relative parts: TensorFlow loads it later. Exits with an error if it is not there."""
    library = library_path()
    if not library.exists():
        sys.exit(f"tpu_worker: {library} does not exist; TPU_LIBRARY_PATH has to name a built {NAME}, or be unset "
                 "after `pip install .`")
    return library.resolve()


def main() -> None:
    """Does not return."""
    parser = argparse.ArgumentParser(prog="python -m tpuboard.tpu_worker", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=PORT, help=f"of the node; 0: any free one (default: {PORT})")
    port = free_port(parser.parse_args().port)
    os.environ["TPU_LIBRARY_PATH"] = str(existing_library())
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    try:
        import tensorflow as tf
        from tensorflow.python.framework import kernels
    except ImportError as error:
        sys.exit(f"tpu_worker: {error}; install tensorflow-tpu (docs/tensorflow.md)")
    if not kernels.get_registered_kernels_for_op("TPUExecute").kernel:
        sys.exit(f"tpu_worker: found TensorFlow {tf.__version__} without its TPU runtime, expected the package "
                 "tensorflow-tpu (docs/tensorflow.md)")
    cluster = tf.train.ClusterSpec({"worker": [f"{HOST}:{port}"]})
    server = tf.distribute.Server(cluster, job_name="worker", task_index=0, protocol="grpc")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing of Python runs while the server does
    print(f"export TPU_NAME=grpc://{HOST}:{port}", flush=True)
    server.join()


if __name__ == "__main__":
    main()
