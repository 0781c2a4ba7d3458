// Vectors of the instruction set that a source is compiled for, and what attention does with them. Included by one
// source that is compiled several times: everything is local to it, and nothing comes from the standard library.
#pragma once
#include <cstdint>

#include "fused.hpp"

#if defined(__x86_64__) && !defined(SIAFU_SCALAR)
#include <immintrin.h>
#endif

namespace {

using siafu::fused;

#define SIAFU_INLINE __attribute__((always_inline)) inline
#define SIAFU_LAMBDA __attribute__((always_inline))

#if defined(SIAFU_AVX512)
#define SIAFU_LANES 16
#elif defined(SIAFU_AVX2)
#define SIAFU_LANES 8
#else
#define SIAFU_LANES 4
#endif

constexpr int W = SIAFU_LANES;
typedef float Floats __attribute__((vector_size(4 * SIAFU_LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * SIAFU_LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * SIAFU_LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * SIAFU_LANES)));

struct Bfloat16 {
  uint16_t bits;
};

SIAFU_INLINE Floats splat(float x) { return x - Floats{}; }
SIAFU_INLINE Ints splat(int32_t x) { return x - Ints{}; }

SIAFU_INLINE Floats load(const float* p) {
  Floats v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

SIAFU_INLINE Ints load(const int32_t* p) {
  Ints v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

SIAFU_INLINE Floats load(const Bfloat16* p) {
  Halves bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return reinterpret_cast<Floats>(__builtin_convertvector(bits, Words) << 16);
}

SIAFU_INLINE float value(float x) { return x; }

SIAFU_INLINE float value(Bfloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float v;
  __builtin_memcpy(&v, &bits, sizeof v);
  return v;
}

SIAFU_INLINE void store(float* p, Floats v) { __builtin_memcpy(p, &v, sizeof v); }

// The first n <= W entries, then zeros; nothing behind them is touched.
template <class E>
SIAFU_INLINE Floats load_part(const E* p, int n) {
  float v[W] = {};
  for (int i = 0; i < n; ++i) v[i] = value(p[i]);
  return load(v);
}

SIAFU_INLINE void store_part(float* p, Floats v, int n) {
#if defined(SIAFU_AVX512)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
#else
  float all[W];
  store(all, v);
  for (int i = 0; i < n; ++i) p[i] = all[i];
#endif
}

// Whether a whole vector is as quickly read as a part of one.
#if defined(SIAFU_AVX512)
constexpr bool PARTS_ARE_CHEAP = true;
#else
constexpr bool PARTS_ARE_CHEAP = false;
#endif

#if defined(SIAFU_AVX512)
template <>
SIAFU_INLINE Floats load_part(const float* p, int n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}

template <>
SIAFU_INLINE Floats load_part(const Bfloat16* p, int n) {
  const Halves bits = reinterpret_cast<Halves>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1), p));
  return reinterpret_cast<Floats>(__builtin_convertvector(bits, Words) << 16);
}
#endif

// Lane i: v[index[i]].
SIAFU_INLINE Floats permute(Floats v, Ints index) {
#if defined(SIAFU_AVX512)
  return _mm512_maskz_permutexvar_ps(0xffff, reinterpret_cast<__m512i>(index), v);  // GCC 12 warns of the plain one
#elif defined(SIAFU_AVX2)
  return _mm256_permutevar8x32_ps(v, reinterpret_cast<__m256i>(index));
#else
  return Floats{v[index[0]], v[index[1]], v[index[2]], v[index[3]]};
#endif
}

// Lane i: p[index[i]], for indices below N; p lies at a multiple of 4 N bytes (of 4 W, if N is more), so that no load
// crosses a cache line.
template <int N>
SIAFU_INLINE Floats pick(const float* p, Ints index) {
  if (N == 1) return splat(p[0]);
#if defined(SIAFU_AVX512)
  double pair;
  if (N == 2) __builtin_memcpy(&pair, p, sizeof pair);
  const Floats all = N == 2   ? _mm512_castpd_ps(_mm512_set1_pd(pair))
                     : N == 4 ? _mm512_maskz_broadcast_f32x4(0xffff, _mm_loadu_ps(p))
                     : N == 8 ? _mm512_maskz_broadcast_f32x8(0xffff, _mm256_loadu_ps(p))
                              : load(p);
  return permute(all, index);
#elif defined(SIAFU_AVX2)
  double pair;
  if (N == 2) __builtin_memcpy(&pair, p, sizeof pair);
  const Floats all = N == 2   ? _mm256_castpd_ps(_mm256_set1_pd(pair))
                     : N == 4 ? _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p))
                              : load(p);
  return permute(all, index);
#else
  return Floats{p[index[0]], p[index[1]], p[index[2]], p[index[3]]};
#endif
}

typedef double Two __attribute__((vector_size(16)));

template <int L>
struct Lanes {
  typedef float F __attribute__((vector_size(4 * L)));
  typedef int32_t I __attribute__((vector_size(4 * L)));
  typedef uint16_t H __attribute__((vector_size(2 * L)));
  typedef uint64_t U __attribute__((vector_size(8 * L)));
};
typedef Lanes<4>::F Four;
typedef Lanes<8>::F Eight;
typedef Lanes<16>::F Sixteen;

SIAFU_INLINE Lanes<8>::I iota() { return Lanes<8>::I{0, 1, 2, 3, 4, 5, 6, 7}; }

#if defined(SIAFU_AVX512)
// The first n floats, then zeros, without a branch: AVX2's masks took a tenth longer (EPYC 9004).
SIAFU_INLINE void load_first(Four& v, const float* p, int n) {
  v = _mm_maskz_loadu_ps(static_cast<__mmask8>((1u << n) - 1), p);
}
SIAFU_INLINE void load_first(Eight& v, const float* p, int n) {
  v = _mm256_maskz_loadu_ps(static_cast<__mmask8>((1u << n) - 1), p);
}
SIAFU_INLINE void load_first(Sixteen& v, const float* p, int n) { v = load_part(p, n); }
#endif

SIAFU_INLINE Eight join(Four low, Four high) {
#if defined(SIAFU_AVX512) || defined(SIAFU_AVX2)
  return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
#else
  return Eight{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
#endif
}

#if !defined(SIAFU_AVX2)
SIAFU_INLINE Eight permute(Eight v, Lanes<8>::I index) {
#if defined(SIAFU_AVX512)
  return _mm256_permutevar8x32_ps(v, reinterpret_cast<__m256i>(index));
#else
  return Eight{v[index[0]], v[index[1]], v[index[2]], v[index[3]], v[index[4]], v[index[5]], v[index[6]], v[index[7]]};
#endif
}
#endif

// The first n < 8 floats, then zeros; or all eight.
SIAFU_INLINE Eight load_eight(const float* p, int n) {
  Eight v = {};
  if (n >= 8)
    __builtin_memcpy(&v, p, sizeof v);
  else
    for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}

// The sum of sixteen lanes, in as many vectors as they take: halves onto each other, on every processor.
SIAFU_INLINE float total(const Floats* parts) {
#if defined(SIAFU_AVX512)
  const Eight eight = _mm512_maskz_extractf32x8_ps(0xff, parts[0], 0) + _mm512_maskz_extractf32x8_ps(0xff, parts[0], 1);
#elif defined(SIAFU_AVX2)
  const Eight eight = parts[0] + parts[1];
#endif
#if defined(SIAFU_AVX512) || defined(SIAFU_AVX2)
  const Four four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
#else
  const Four four = (parts[0] + parts[2]) + (parts[1] + parts[3]);
#endif
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Lane i: v[index[i]], of a vector that may be shorter.
SIAFU_INLINE Floats spread(Floats v, Ints index) { return permute(v, index); }
#if defined(SIAFU_AVX512)
SIAFU_INLINE Floats spread(Eight v, Ints index) { return permute(_mm512_castps256_ps512(v), index); }
SIAFU_INLINE Floats spread(Four v, Ints index) { return permute(_mm512_castps128_ps512(v), index); }
#elif defined(SIAFU_AVX2)
SIAFU_INLINE Floats spread(Four v, Ints index) { return permute(_mm256_castps128_ps256(v), index); }
#endif

#if defined(SIAFU_AVX512)
SIAFU_INLINE bool any(Lanes<16>::I mask) { return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0; }
SIAFU_INLINE bool any(Lanes<8>::I mask) { return _mm256_test_epi32_mask((__m256i)mask, (__m256i)mask) != 0; }
SIAFU_INLINE bool any(Lanes<4>::I mask) { return _mm_test_epi32_mask((__m128i)mask, (__m128i)mask) != 0; }
#elif defined(SIAFU_AVX2)
SIAFU_INLINE bool any(Lanes<8>::I mask) { return _mm256_movemask_epi8((__m256i)mask) != 0; }
SIAFU_INLINE bool any(Lanes<4>::I mask) { return _mm_movemask_epi8((__m128i)mask) != 0; }
#else
SIAFU_INLINE bool any(Lanes<4>::I mask) { return (mask[0] | mask[1] | mask[2] | mask[3]) != 0; }
SIAFU_INLINE bool any(Lanes<8>::I mask) {
  return (mask[0] | mask[1] | mask[2] | mask[3] | mask[4] | mask[5] | mask[6] | mask[7]) != 0;
}
#endif

// n of x = n ln 2 + r, and q 2^n or 0 where x is below -87.3: the same bits with each set's own instructions.
#if defined(SIAFU_AVX512)
#define SIAFU_SCALING(F, m, mask)                                                                                   \
  SIAFU_INLINE F rounded(F x) { return m##maskz_roundscale_ps(mask, x, 8); }                                        \
  SIAFU_INLINE F scaled(F q, F n, F x) {                                                                            \
    return m##maskz_scalef_ps(m##cmp_ps_mask(x, F{} - 87.3f, _CMP_NLT_UQ), q, n);                                   \
  }
SIAFU_SCALING(Sixteen, _mm512_, 0xffff)
SIAFU_SCALING(Eight, _mm256_, 0xff)
SIAFU_SCALING(Four, _mm_, 0xf)
#undef SIAFU_SCALING
template <class F>
SIAFU_INLINE F bounded(F x) { return x > 88.0f ? F{} + 88.0f : x; }
#else
template <class F>
SIAFU_INLINE F rounded(F x) {
  return (x + 12582912.0f) - 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to an integer
}
template <class F>
SIAFU_INLINE F scaled(F q, F n, F x) {
  typedef int32_t I __attribute__((vector_size(sizeof(F))));
  return x < -87.3f ? F{} : reinterpret_cast<F>(reinterpret_cast<I>(q) + (__builtin_convertvector(n, I) << 23));
}
template <class F>
SIAFU_INLINE F bounded(F x) {
  x = x > 88.0f ? F{} + 88.0f : x;
  return x < -87.3f ? F{} - 87.3f : x;
}
#endif

// e^x, relative error below 2e-7 for x in [-87.3, 88]; 0 below; e^88 above; NaN stays NaN.
template <class F>
SIAFU_INLINE F exponential(F x) {
  const F zero = {}, y = bounded(x), n = rounded(y * 1.44269504f);
  const F r = fused(n, zero + 2.12194440e-4f, fused(n, zero - 0.693359375f, y));  // Cody & Waite: ln 2 in two parts
  const F s = r * r;  // Cephes expf, in Estrin's order: short chains of sums
  const F low = fused(r, zero + 1.6666665459e-1f, zero + 5.0000001201e-1f);
  const F high = fused(r, zero + 8.3334519073e-3f, zero + 4.1665795894e-2f);
  const F q = fused(fused(r, zero + 1.9875691500e-4f, zero + 1.3981999507e-3f), s * s, fused(high, s, low));
  return scaled(fused(q, s, r + 1.0f), n, x);
}

// ln x, relative error about 1e-7 for normal x > 0.
SIAFU_INLINE Floats logarithm(Floats x) {
  const Ints bits = reinterpret_cast<Ints>(x);
  Floats m = reinterpret_cast<Floats>((bits & 0x007fffff) | 0x3f000000);  // [0.5, 1)
  const Ints small = m < 0.707106781f;
  const Ints exponent = (bits >> 23) - 126, n = small ? exponent - 1 : exponent;
  m = (small ? m + m : m) - 1.0f;
  const Floats e = __builtin_convertvector(n, Floats), z = m * m;
  Floats q = fused(m, splat(7.0376836292e-2f), splat(-1.1514610310e-1f));  // Cephes logf
  q = fused(q, m, splat(1.1676998740e-1f));
  q = fused(q, m, splat(-1.2420140846e-1f));
  q = fused(q, m, splat(1.4249322787e-1f));
  q = fused(q, m, splat(-1.6668057665e-1f));
  q = fused(q, m, splat(2.0000714765e-1f));
  q = fused(q, m, splat(-2.4999993993e-1f));
  q = fused(q, m, splat(3.3333331174e-1f));
  q = fused(q * m, z, fused(z, splat(-0.5f), e * -2.12194440e-4f));
  return fused(e, splat(0.693359375f), m + q);
}

}  // namespace
