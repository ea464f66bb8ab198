"""The package beside JAX on the board: both see the same one, and measure() counts what JAX did."""

from __future__ import annotations

import unittest

import tpuboard

import jax
import jax.numpy as jnp
import numpy as np


class JaxOnTheBoard(unittest.TestCase):
    """One board for both."""

    def test_measures_a_block(self) -> None:
        self.assertEqual([device.platform for device in jax.devices()], ["tpu"] * 8)
        x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7
        product = jax.jit(jnp.matmul)
        held = jax.device_put(x, jax.devices()[2])
        product(held, held).block_until_ready()
        with tpuboard.measure(output=None) as figures:
            y = product(held, held)
        np.testing.assert_array_equal(y, x @ x)
        self.assertEqual((figures.cores, figures.programs), ([2], 1))
        flops = figures.mxu * figures.cycles * tpuboard.board().peak_flops_per_cycle
        self.assertAlmostEqual(flops / (2 * 64**3), 1)
        self.assertGreaterEqual(tpuboard.board().devices[2].hbm_used, 2 * x.nbytes)

    def test_options_are_fixed(self) -> None:
        jax.devices()
        with self.assertRaisesRegex(tpuboard.TpuError, "the board is open"):
            tpuboard.configure(threads=1)


if __name__ == "__main__":
    unittest.main()
