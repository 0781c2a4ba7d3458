// Vectors of the instruction set that a source is compiled for, and how rows of any width are loaded and stored with them.
#pragma once
#include <cstdint>

#if SIAFU_AVX512 || SIAFU_AVX512BF16
#include <immintrin.h>
#endif

namespace siafu {
namespace {

// L floats, and their bits. The loose ones may lie anywhere.
template <int L>
struct Lanes {
  typedef float Floats __attribute__((vector_size(L * 4)));
  typedef int32_t Ints __attribute__((vector_size(L * 4)));
  typedef uint32_t Words __attribute__((vector_size(L * 4), may_alias));
  typedef uint16_t Halves __attribute__((vector_size(L * 2), may_alias));
  typedef float LooseFloats __attribute__((vector_size(L * 4), aligned(4), may_alias));
  typedef uint32_t LooseWords __attribute__((vector_size(L * 4), aligned(2), may_alias));
  typedef uint16_t LooseHalves __attribute__((vector_size(L * 2), aligned(2), may_alias));
};

#if SIAFU_AVX512 || SIAFU_AVX512BF16
constexpr int LANES = 16;
#elif SIAFU_AVX2
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

using Floats = Lanes<LANES>::Floats;
using Ints = Lanes<LANES>::Ints;

// The first ``valid`` of LANES floats, the others ``fill``.
inline Floats load_part(const float* from, int64_t valid, float fill) {
  if (valid >= LANES) return *(const Lanes<LANES>::LooseFloats*)from;
#if SIAFU_AVX512 || SIAFU_AVX512BF16
  return (Floats)_mm512_mask_loadu_ps(_mm512_set1_ps(fill), (__mmask16)((1u << valid) - 1), from);
#else
  Floats part = Floats{} + fill;
  for (int64_t i = 0; i < valid; ++i) part[i] = from[i];
  return part;
#endif
}

inline void store_part(float* to, int64_t valid, Floats x) {
  if (valid >= LANES) {
    *(Lanes<LANES>::LooseFloats*)to = x;
    return;
  }
#if SIAFU_AVX512 || SIAFU_AVX512BF16
  _mm512_mask_storeu_ps(to, (__mmask16)((1u << valid) - 1), (__m512)x);
#else
  for (int64_t i = 0; i < valid; ++i) to[i] = x[i];
#endif
}

// In a fixed order: halves onto each other.
inline float total(Floats x) {
  float part[LANES];
  __builtin_memcpy(part, &x, sizeof part);
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) part[i] += part[i + half];
  return part[0];
}

inline float largest(Floats x) {
  float most = x[0];
  for (int i = 1; i < LANES; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

}  // namespace
}  // namespace siafu
