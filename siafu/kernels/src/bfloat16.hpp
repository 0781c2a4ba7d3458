// bfloat16, the upper half of a float32's bits, a number at a time: the compiler makes vectors of loops.
#pragma once
#include <cstdint>

namespace siafu {
namespace {

inline uint32_t bits_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

// To the nearest, ties to even; nan stays nan.
inline uint16_t to_bfloat16(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}

inline float from_bfloat16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace
}  // namespace siafu
