// a * b + c with one rounding, on every processor: kernels write it out where products are added, and -ffp-contract=off
// (setup.py) keeps compilers from fusing, or not fusing, as they like. For vectors of floats or doubles of any width.
#pragma once

#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace siafu {
namespace {

inline __attribute__((always_inline)) float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline __attribute__((always_inline)) double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <class V>
inline __attribute__((always_inline)) V fused(V a, V b, V c) {
  [[maybe_unused]] constexpr bool SINGLE = sizeof(V{}[0]) == 4;
#if defined(__FMA__)
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64)
    return SINGLE ? (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c)
                  : (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#endif
  if constexpr (sizeof(V) == 32)
    return SINGLE ? (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c)
                  : (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
  if constexpr (sizeof(V) == 16)
    return SINGLE ? (V)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c)
                  : (V)_mm_fmadd_pd((__m128d)a, (__m128d)b, (__m128d)c);
#elif defined(__aarch64__)
  if constexpr (sizeof(V) == 16)
    return SINGLE ? (V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b)
                  : (V)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#endif
  V sum = c;  // without such an instruction, the C library's fma: slow and right
  for (unsigned i = 0; i < sizeof(V) / sizeof(V{}[0]); ++i) sum[i] = fused(a[i], b[i], c[i]);
  return sum;
}

}  // namespace
}  // namespace siafu
