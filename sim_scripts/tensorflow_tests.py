#!/usr/bin/env python3
"""TensorFlow's own tests on the board: runs files of its repository and of Keras 2's, and sorts the results by reason.

Usage: tensorflow_tests.py --tests FOLDER [--tests FOLDER] [--library LIBRARY] [--cases N] [--match REGEX]
                           [--limit SECONDS] [--out FOLDER] [--json FILE] [--markdown FILE] [FILE ...]
  Run it with the Python of an environment that sim_scripts/tensorflow_venv made. A FOLDER is the root of a repository,
  or a part of it with the same paths: tensorflow/tensorflow with tensorflow/python/distribute and
  tensorflow/compiler/tests, and keras-team/tf-keras with tf_keras. A FILE is a module (tensorflow.compiler.tests.
  sort_ops_test). Without FILEs: those of the table in docs/tensorflow.md.
  --cases N takes N tests of each file, evenly spread over it; without it all run.
A module that the packages do not have comes from the folders. The tests that choose a strategy get those for TPUs.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/tensorflow"))

import jax_tests as runner  # noqa: E402
import run as environments  # noqa: E402

DISTRIBUTE = ["tpu_strategy_test", "tpu_strategy_model_parallelism_test", "tpu_strategy_compilation_test",
              "values_test", "vars_test", "strategy_common_test", "custom_training_loop_gradient_test",
              "custom_training_loop_input_test", "checkpointing_test", "metrics_v1_test",
              "moving_averages_test", "tf_function_test", "warm_starting_util_test"]
OPERATIONS = ["adadelta", "adagrad", "adam", "add_n", "argminmax", "binary_ops", "bucketize_op", "case",
              "categorical_op", "cholesky_op", "complex_div", "concat_ops", "cond", "conv2d", "conv3d",
              "data_format_ops", "depthwise_conv_op", "dynamic_slice_ops", "dynamic_stitch", "einsum_op",
              "ensure_shape_op", "extract_image_patches_op", "fake_quant_ops", "fft", "ftrl", "function",
              "fused_batchnorm", "gather_nd_op", "gather", "image_ops", "listdiff_op", "lrn_ops", "lstm",
              "manip_ops", "matrix_band_part", "matrix_diag_ops", "matrix_inverse_op", "matrix_solve_op",
              "matrix_triangular_solve_op", "momentum", "nary_ops", "nullary_ops", "pooling_ops_3d", "pooling_ops",
              "qr_op", "quantized_ops", "random_ops", "reduce_ops", "reduce_window", "reshape_op", "reverse_ops",
              "reverse_sequence_op", "rmsprop", "scan_ops", "scatter_nd_op", "searchsorted_op",
              "segment_reduction_ops", "self_adjoint_eig_op", "slice_ops", "sort_ops", "spacetobatch_op",
              "sparse_to_dense_op", "stack_ops", "stateful_random_ops", "stateless_random_ops", "svd_op",
              "tensor_array_ops", "tensor_list_ops", "ternary_ops", "tridiagonal_solve_ops", "unary_ops",
              "unique_ops", "variable_ops", "where_op", "while", "xla_ops"]
KERAS = ["keras_dnn_correctness_test", "keras_embedding_model_correctness_test", "keras_image_model_correctness_test",
         "keras_metrics_test", "keras_rnn_model_correctness_test", "keras_stateful_lstm_model_correctness_test",
         "keras_utils_test", "keras_models_test", "keras_optimizer_v2_test", "custom_training_loop_metrics_test",
         "custom_training_loop_models_test", "custom_training_loop_optimizer_test", "ctl_correctness_test",
         "distribute_strategy_test", "minimize_loss_test", "saved_model_save_load_test", "checkpointing_test"]
FILES = [*(f"tensorflow.python.distribute.{name}" for name in DISTRIBUTE),
         *(f"tf_keras.distribute.{name}" for name in KERAS),
         *(f"tensorflow.compiler.tests.{name}_test" for name in OPERATIONS)]

# Of tests that have a strategy those with one for TPUs.
MATCH = r"^(?!.*distribution_)|TPU"

# These expect one chip with two cores, and have a board of that size.
OF_TWO_CORES = {"tensorflow.python.distribute.tpu_strategy_test"}
TWO_CORES = """include = "v3_8"
[board]
name = { value = "v3_2", unit = "-", origin = "chosen", source = "one chip" }
chips = { value = 1, unit = "chip", origin = "chosen", source = "one chip" }
torus_x = { value = 1, unit = "chip", origin = "chosen", source = "one chip" }
"""

# Types of the board that tests of operations ask for; f16 and the quantized ones are not among them.
TYPES = "DT_FLOAT,DT_DOUBLE,DT_UINT8,DT_INT8,DT_INT32,DT_INT64,DT_BOOL,DT_COMPLEX64,DT_BFLOAT16"

# Reason of a failure -> what its text says; the first that fits. What fits none is for us to mend.
REASONS = [
    ("type", r"an array of element type \d+ |of CHLO on f64|element type \S+ is not supported|is no type of the board|"
             r"DT_HALF|complex128|DT_COMPLEX128"),
    # Numbers of f64 have 48 bits here, as on a TPU.
    ("precision of f64", r"Max relative difference among violations: \d[.\d]*e-1[2-6]\n"),
    ("dynamic shape", r"dynamic shapes are not supported"),
    ("size", r"program grows beyond \d+ instructions"),
    ("other version", r"AttributeError: tpu_use_tfrt"),
    ("package", r"ModuleNotFoundError|No module named|ImportError: |module 'tf_keras\.\S+' has no attribute"),
    ("graph mode", r"experimental_connect_to_cluster` can only be called in eager mode"),
    # What XLA's kernels have not for any device that is not theirs, and TensorFlow's own refusals.
    ("TensorFlow", r"Support for TensorList crossing the XLA/TF boundary|No registered '\S+' OpKernel|"
                   r"Could not find compiler for platform|not compiled with XLA support|"
                   r"Detected unsupported operations|No OpKernel was registered"),
]


class FromFolders(importlib.abc.MetaPathFinder):
    """Modules of tests and of what only tests use, for packages that come without them."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders

    def find_spec(self, name: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in ("tensorflow", "tf_keras"):
            return None
        if name.startswith("tf_keras.") and not name.startswith("tf_keras.src"):
            installed = name.replace("tf_keras", "tf_keras.src", 1)
            if self.has(installed):
                return importlib.machinery.ModuleSpec(name, Same(installed))
        for folder in self.folders:
            file = folder / name.replace(".", "/")
            if (file / "__init__.py").exists():
                return importlib.util.spec_from_file_location(name, file / "__init__.py",
                                                              submodule_search_locations=[str(file)])
            if file.is_dir():
                spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = [str(file)]
                return spec
            if file.with_suffix(".py").exists():
                return importlib.util.spec_from_file_location(name, file.with_suffix(".py"))
        return None

    @staticmethod
    def has(name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:  # of its package
            return False


class Same(importlib.abc.Loader):
    """The module of another name: the wheel of Keras has its sources one folder deeper."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return importlib.import_module(self.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def find_in_this_process(resolver: Any) -> None:
    """Tests make resolvers without a name, or with an empty one."""
    plain = resolver.__init__

    def init(self: object, tpu: str | None = None, *more: Any, **names: Any) -> None:
        plain(self, tpu or "local", *more, **names)

    resolver.__init__ = init


def worker(module: str, listing: bool, limit: float, folders: list[Path]) -> None:
    """The worker of jax_tests.py, with the board as TensorFlow's TPU system."""
    sys.argv = ["test_tpu"]  # tests with a strategy run with those for TPUs in a program of this name
    sys.meta_path.append(FromFolders(folders))
    import tensorflow as tf
    from absl import flags

    find_in_this_process(tf.distribute.cluster_resolver.TPUClusterResolver)
    if not listing:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    if module.startswith("tensorflow.compiler.tests."):
        # Operations are of f32, as on the CPU with which the tests compare.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        importlib.import_module("tensorflow.compiler.tests.xla_test")
        flags.FLAGS.set_default("test_device", "TPU")
        flags.FLAGS.set_default("types", TYPES)
    importlib.import_module(module)
    if "tpu" in flags.FLAGS:
        flags.FLAGS.set_default("tpu", "local")
    runner.worker(module, listing, limit)


def start(module: str, args: argparse.Namespace, log: IO[str], *options: str) -> subprocess.Popen[str]:
    """A process of `worker`."""
    folders = [f"--tests={folder}" for folder in args.folders]
    board = {"TPUBOARD_BOARD": str(args.out / "v3_2.toml")} if module in OF_TWO_CORES else {}
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", module, *folders, "--limit", str(args.limit),
               *options]
    return subprocess.Popen(command, env=args.variables | board, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=log, text=True)


def row_of(module: str) -> str:
    """Tests of operations have a row together."""
    package, _, name = module.rpartition(".")
    return f"{package}.*" if package == "tensorflow.compiler.tests" else module


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--tests", type=Path, action="append", required=True)
    parser.add_argument("--library", type=Path, default=ROOT / "build/release/lib/libtpuboard_pjrt.so")
    parser.add_argument("--cases", type=int)
    parser.add_argument("--match", default=MATCH)
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--out", type=lambda name: Path(name).resolve(), default=ROOT / "out/tensorflow")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.folders = [folder.resolve() for folder in args.tests]
    args.tests = args.folders[0]  # for messages
    if args.worker:
        worker(args.worker, args.list, args.limit, args.folders)
        return 0
    if not args.library.is_file():
        sys.exit(f"tensorflow_tests: {args.library} does not exist; build it, or name another with --library")
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "v3_2.toml").write_text(TWO_CORES, encoding="utf-8")
    args.start, args.reasons = start, REASONS
    args.variables = environments.environment(args.library.resolve()) | {"TPUBOARD_THREADS": "1"}
    results: dict[str, list[runner.Result]] = {}
    unread = False
    for module in args.files:
        names = runner.names_of(module, args)
        if names is None:
            unread = True
            continue
        some = runner.run_file(module, names, args)
        results.setdefault(row_of(module), []).extend(some)
        counts = Counter(result.reason or result.outcome for result in some)
        print(f"{module}: " + ", ".join(f"{count} {what}" for what, count in counts.most_common()), flush=True)
        if args.json:
            plain = {name: [asdict(result) for result in every] for name, every in results.items()}
            args.json.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    if args.markdown:
        table = runner.markdown(results).replace("by JAX", "by TensorFlow")
        args.markdown.write_text(table, encoding="utf-8")
    return int(unread or any(result.reason == "ours" for some in results.values() for result in some))


if __name__ == "__main__":
    sys.exit(main())
