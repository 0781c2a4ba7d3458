// The exponential of float vectors of any width, for sources compiled once per instruction set.
#pragma once
#include <cstdint>

#include "fused.hpp"

namespace siafu {
namespace {

// e^x to 1.5 units in the last place, from 0 below -104 to infinity above 88.73; NaN stays NaN. F: a vector of floats, I: of
// as many int32. Cody & Waite's reduction to |r| <= ln 2 / 2, then Taylor's polynomial fitted there (Cephes' expf).
template <class F, class I>
inline __attribute__((always_inline)) F exponential(F x) {
  const F zero = {};
  x = x < -110.0f ? zero - 110.0f : x;
  x = x > 89.0f ? zero + 89.0f : x;
  const F magic = zero + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits
  const F shifted = fused(x, zero + 1.44269504f, magic);
  const F count = shifted - magic;
  const F r = fused(count, zero + 2.12194440e-4f, fused(count, zero - 0.693359375f, x));
  F p = fused(r, zero + 1.9875691500e-4f, zero + 1.3981999507e-3f);
  p = fused(p, r, zero + 8.3334519073e-3f);
  p = fused(p, r, zero + 4.1665795894e-2f);
  p = fused(p, r, zero + 1.6666665459e-1f);
  p = fused(p, r, zero + 5.0000001201e-1f);
  p = fused(p, r * r, r + 1.0f);
  const I n = (I)shifted - (I)magic;
  const I half = n >> 1;  // 2^n in two steps: neither leaves the range, where the result is a subnormal
  return p * (F)((half + 127) << 23) * (F)((n - half + 127) << 23);
}

}  // namespace
}  // namespace siafu
