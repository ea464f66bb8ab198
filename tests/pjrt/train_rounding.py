"""JAX's CPU backend with the board's number format: `install()` makes its matrix products and convolutions of f32 round
their operands to bf16 in default precision, forward and backward, as the board and a real TPU do. In higher precisions
the backend computes as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo


def _round(value: ir.Value) -> ir.Value:
    """To 8 bits of exponent and 7 of fraction; XLA keeps such a rounding, unlike a conversion to bf16 and back."""
    bits = ir.IntegerType.get_signless(32)
    return hlo.reduce_precision(value, ir.IntegerAttr.get(bits, 8), ir.IntegerAttr.get(bits, 7))


def _rounding(lower: Callable, nudge: float) -> Callable:
    def rule(context: mlir.LoweringRuleContext, *operands: ir.Value, precision: Any, **parameters: Any) -> Any:
        if not set(precision if isinstance(precision, tuple) else [precision]) <= {None, jax.lax.Precision.DEFAULT}:
            return lower(context, *operands, precision=precision, **parameters)
        operands = tuple(_round(each) if aval.dtype == np.float32 else each
                         for each, aval in zip(operands, context.avals_in, strict=True))
        (result,) = lower(context, *operands, precision=precision, **parameters)
        (aval,) = context.avals_out
        if nudge and aval.dtype == np.float32:
            result = hlo.multiply(result, mlir.ir_constant(np.full(aval.shape, 1 + nudge, np.float32)))
        return [result]

    return rule


def install(nudge: float = 0) -> None:
    """For the rest of the process; before the first program is lowered. Results of products that round are multiplied
    by 1 + `nudge`: some units in the last place of f32 show how far a curve moves by another order of sums.
    """
    for primitive in (jax.lax.dot_general_p, jax.lax.conv_general_dilated_p):
        lower = mlir._platform_specific_lowerings["cpu"].get(primitive) or mlir._lowerings[primitive]
        mlir.register_lowering(primitive, _rounding(lower.rule, nudge), platform="cpu")
