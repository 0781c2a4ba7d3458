// The logarithm of a double, of our own: the C library's differs between processors in its last bit.
#pragma once
#include <cstdint>

#include "fused.hpp"

namespace siafu {
namespace {

// ln x to about one unit in the last place, for x that is normal, positive and finite; infinity and NaN stay.
// x = 2^n m with m in [sqrt(1/2), sqrt(2)), and ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172, by its series.
inline double logarithm(double x) {
  int64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  if (bits >= 0x7ff0000000000000 || bits <= 0) return x > 0 ? x : __builtin_nan("");
  const int64_t n = (bits - 0x3fe6a09e667f3bcd) >> 52;  // of sqrt(1/2)
  const int64_t mantissa = bits - n * (int64_t{1} << 52);
  double m;
  __builtin_memcpy(&m, &mantissa, sizeof m);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  constexpr double INVERSE[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  double series = INVERSE[0];
  for (int i = 1; i < 11; ++i) series = fused(series, z, INVERSE[i]);
  const double count = static_cast<double>(n);
  const double low = fused(series * z, 2.0 * s, count * 1.90821492927058770002e-10);  // ln 2 in two parts
  return fused(count, 6.93147180369123816490e-01, fused(2.0, s, low));
}

}  // namespace
}  // namespace siafu
