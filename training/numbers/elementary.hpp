// Elementary functions made of additions, multiplications and divisions of f64 only, so that their
// bits do not depend on the host's mathematical library.
#pragma once

namespace tpu::training {

/// cos(pi * t) for t in 0 .. 1; the largest error is below 1e-15.
double cos_pi(double t);

/// The number in 1 .. x whose n-th power is x, for x of at least 1; n of at least 1.
double root(double x, int n);

}  // namespace tpu::training
