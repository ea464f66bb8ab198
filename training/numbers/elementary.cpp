// Series around zero, for arguments of at most pi/4.
#include "numbers/elementary.hpp"

namespace tpu::training {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int kTerms = 10;  // x^20 / 20! is below 1e-20 there

double cos_series(double x) {
  double sum = 1.0;
  for (int n = kTerms; n > 0; --n) {
    sum = 1.0 - sum * (x * x) / ((2.0 * n - 1.0) * (2.0 * n));
  }
  return sum;
}

double sin_series(double x) {
  double sum = 1.0;
  for (int n = kTerms; n > 0; --n) {
    sum = 1.0 - sum * (x * x) / ((2.0 * n) * (2.0 * n + 1.0));
  }
  return x * sum;
}

double power(double x, int n) {
  double result = 1.0;
  for (; n > 0; n /= 2, x *= x) {
    result = n % 2 == 1 ? result * x : result;
  }
  return result;
}

}  // namespace

double cos_pi(double t) {
  if (t > 0.5) {
    return -cos_pi(1.0 - t);
  }
  return t > 0.25 ? sin_series(kPi * (0.5 - t)) : cos_series(kPi * t);
}

double root(double x, int n) {
  double low = 1.0;
  double high = x;
  for (double middle = (low + high) / 2; middle > low && middle < high; middle = (low + high) / 2) {
    (power(middle, n) <= x ? low : high) = middle;
  }
  return low;
}

}  // namespace tpu::training
