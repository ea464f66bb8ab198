#!/usr/bin/env python3
"""Exports programs of this folder as HLO modules (hlo/NAME.hlo.pb), as PyTorch/XLA and XLA's dumps have them.

Usage: export_hlo.py [--out-dir DIR]. A module of several cores has its configuration around it
(HloModuleProtoWithConfig).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compiler"))

import export_graphs  # noqa: E402  sets up JAX's environment
import hlo_forms_test  # noqa: E402

import jax  # noqa: E402

# Those whose modules hold other instructions than the rest.
PROGRAMS = ("dense", "constants", "control", "conv_grad", "integers", "reductions", "shapes", "spectrum",
            "mlp_sgd", "collectives", "collectives_2d", "sharded_outside", "auto_sharding", "bad_f16")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().out_dir / "hlo"
    folder.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    jax.config.update("jax_use_shardy_partitioner", False)  # torch_xla and older XLA have GSPMD's shardings
    for name in PROGRAMS:
        function, inputs = export_graphs.table()[name]
        text = str(function.trace(*inputs).lower(lowering_platforms=("tpu",)).compiler_ir("stablehlo"))
        module = function.trace(*inputs).lower(lowering_platforms=("tpu",)).compiler_ir("hlo")
        data = module.as_serialized_hlo_module_proto()
        partitions = hlo_forms_test.count_of(text, "num_partitions")
        if partitions > 1:
            data = hlo_forms_test.with_config(data, 1, partitions)
        (folder / f"{name}.hlo.pb").write_bytes(data)
    for name, text in other_programs().items():
        module, *_ = hlo_forms_test.pair(text)
        (folder / f"{name}.hlo.pb").write_bytes(module)


def other_programs() -> dict[str, str]:
    """StableHLO: sends and receives, manual parts of GSPMD, and jax.shard_map in Shardy's language."""
    sharded = dict(hlo_forms_test.sharded_programs.sharded(shardy=True))
    return {"host_transfers": dict(hlo_forms_test.programs.hand_written())["token"],
            "manual_part": hlo_forms_test.sharded_programs.MANUAL_PART,
            "shardy": sharded["sharded.several"], "shardy_nested": sharded["sharded.nested"]}


if __name__ == "__main__":
    main()
