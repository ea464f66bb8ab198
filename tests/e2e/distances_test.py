"""What distances.py must see: a NaN behind other values, infinities, signs of zeros, shapes.

Usage: distances_test.py
"""

from __future__ import annotations

import math
import unittest

import distances

import numpy as np


def _f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


class RelativeL2(unittest.TestCase):
    def test_is_the_quotient_of_norms(self) -> None:
        self.assertEqual(distances.relative_l2(_f32(3, 4.5), _f32(3, 4)), 0.1)
        self.assertEqual(distances.relative_l2(_f32(0, 0.5), _f32(0, 0)), 0.5)
        self.assertEqual(distances.relative_l2(_f32(), _f32()), 0)

    def test_a_nan_survives_the_largest_of_several(self) -> None:
        leaves = [(_f32(1, 2), _f32(1, 2)), (_f32(math.nan, 2), _f32(1, 2))]
        self.assertEqual(max(distances.relative_l2(a, b) for a, b in leaves), math.inf)

    def test_what_is_not_finite_must_be_where_the_reference_has_it(self) -> None:
        for value in (math.inf, -math.inf, math.nan):
            self.assertEqual(distances.relative_l2(_f32(3, 4.5, value), _f32(3, 4, value)), 0.1)
            self.assertEqual(distances.relative_l2(_f32(3, 4, 7), _f32(3, 4, value)), math.inf)
            self.assertEqual(distances.relative_l2(_f32(3, 4, value), _f32(3, 4, 7)), math.inf)
        self.assertEqual(distances.relative_l2(_f32(1, math.inf), _f32(1, -math.inf)), math.inf)
        self.assertEqual(distances.relative_l2(_f32(1, math.nan), _f32(1, math.inf)), math.inf)

    def test_another_shape_is_not_stretched(self) -> None:
        self.assertEqual(distances.relative_l2(np.ones((1, 3)), np.ones((3,))), math.inf)


class UlpDistance(unittest.TestCase):
    def test_counts_floats_between(self) -> None:
        self.assertEqual(distances.ulp_distance(_f32(1), np.nextafter(_f32(1), _f32(2))), 1)
        self.assertEqual(distances.ulp_distance(-_f32(1), np.nextafter(-_f32(1), _f32(2))), 1)
        self.assertEqual(distances.ulp_distance(_f32(math.nan), _f32(math.nan)), 0)
        self.assertGreater(distances.ulp_distance(_f32(math.nan), _f32(math.inf)), 0)

    def test_zeros_have_a_sign(self) -> None:
        self.assertEqual(distances.ulp_distance(_f32(0.0, -0.0), _f32(-0.0, -0.0)), 1)
        self.assertEqual(distances.ulp_distance(_f32(0.0, -0.0), _f32(0.0, -0.0)), 0)

    def test_subnormals_are_zeros_of_their_sign(self) -> None:
        self.assertEqual(distances.ulp_distance(_f32(1e-40, -1e-40), _f32(0.0, -0.0)), 0)
        self.assertEqual(distances.ulp_distance(_f32(-1e-40), _f32(0.0)), 1)


class Difference(unittest.TestCase):
    def test_types_shapes_and_whole_numbers(self) -> None:
        self.assertIn("expected float32", distances.difference(np.ones(3), _f32(1, 1, 1)))
        self.assertIn("expected", distances.difference(np.ones((1, 3), np.float32), _f32(1, 1, 1)))
        self.assertEqual(distances.difference(np.array([1, 2]), np.array([1, 3])), "1 elements differ")
        self.assertIsNone(distances.difference(np.array([1, 2]), np.array([1, 2])))

    def test_bounds(self) -> None:
        self.assertIn("1 ulp", distances.difference(_f32(-0.0), _f32(0.0)))
        self.assertIsNone(distances.difference(_f32(-0.0), _f32(0.0), ulp=1))
        self.assertIsNone(distances.difference(_f32(3, 4.5), _f32(3, 4), l2=0.1))
        self.assertIn("relative L2", distances.difference(_f32(3, 4.5), _f32(3, 4), l2=0.09))
        self.assertIn("NaN", distances.difference(_f32(1, math.nan), _f32(1, 1), l2=1.0))

    def test_one_wrong_element_among_many(self) -> None:
        right = np.ones(1_000_000, np.float32)
        wrong = right.copy()
        wrong[777] = 1.1
        self.assertLess(distances.relative_l2(wrong, right), 1e-3)
        self.assertIn("largest error 0.1 of the largest", distances.difference(wrong, right, l2=1e-3))

    def test_a_missing_change_is_no_small_difference(self) -> None:
        before = np.linspace(1, 2, 99, dtype=np.float32)
        after = before + np.float32(1e-4)
        self.assertIsNone(distances.difference(before, after, l2=1e-3))
        self.assertIn("relative L2", distances.difference(before, after, l2=1e-3, before=before))
        near = np.nextafter(after, _f32(9))
        self.assertIsNone(distances.difference(near, after, l2=1e-6, before=before))
        self.assertIn("NaN", distances.difference(after * math.nan, after, l2=1.0, before=before))


if __name__ == "__main__":
    unittest.main()
