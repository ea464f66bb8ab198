#!/usr/bin/env python3
"""Writes zero_elements.mlirbc: constants of no elements, written as the splat of one, as JAX makes
them for empty indices.

Usage: export_zero_elements.py [--out-dir DIR]. Needs what export_graphs.py needs. (A script of its
own: the artifacts of export_graphs.py hold the line numbers of that file.)
"""

from __future__ import annotations

import argparse
from pathlib import Path

from jaxlib.mlir.dialects import stablehlo

TEXT = """
module @zero_elements {
  func.func public @main(%x: tensor<4x1xi32>, %y: tensor<0x3xf32>)
      -> (tensor<4x1xi32>, tensor<0x1xi32>, tensor<0x3xf32>, tensor<0xi1>) {
    %c = stablehlo.constant dense<0> : tensor<0x1xi32>
    %b = stablehlo.constant dense<true> : tensor<0xi1>
    %0 = stablehlo.add %y, %y : tensor<0x3xf32>
    %1 = stablehlo.concatenate %x, %c, dim = 0 :
        (tensor<4x1xi32>, tensor<0x1xi32>) -> tensor<4x1xi32>
    return %1, %c, %0, %b : tensor<4x1xi32>, tensor<0x1xi32>, tensor<0x3xf32>, tensor<0xi1>
  }
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    artifact = stablehlo.serialize_portable_artifact_str(TEXT, stablehlo.get_current_version())
    (args.out_dir / "zero_elements.mlirbc").write_bytes(artifact)


if __name__ == "__main__":
    main()
