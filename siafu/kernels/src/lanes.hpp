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

// A cache line of numbers. The loose one may lie anywhere.
template <class T>
struct Line {
  static constexpr int64_t EACH = 64 / sizeof(T);
  typedef T Values __attribute__((vector_size(64)));
  typedef T Loose __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
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

// 0, 1, 2, ...
inline Ints numbered() {
  Ints numbers;
  for (int i = 0; i < LANES; ++i) numbers[i] = i;
  return numbers;
}

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
  // In pieces: a masked store takes Zen 4 some fifty cycles (measured: 20 ns of 78 that a row of 41 logits took).
  __m256 rest = _mm512_castps512_ps256((__m512)x);
  if (valid & 8) {
    _mm256_storeu_ps(to, rest);
    rest = _mm512_extractf32x8_ps((__m512)x, 1), to += 8;
  }
  __m128 last = _mm256_castps256_ps128(rest);
  if (valid & 4) {
    _mm_storeu_ps(to, last);
    last = _mm256_extractf128_ps(rest, 1), to += 4;
  }
  if (valid & 2) {
    _mm_storel_pi((__m64*)to, last);
    last = _mm_movehl_ps(last, last), to += 2;
  }
  if (valid & 1) _mm_store_ss(to, last);
#else
  for (int64_t i = 0; i < valid; ++i) to[i] = x[i];
#endif
}

// Sixteen floats, in as many vectors as that takes: what is summed across lanes is summed in sixteen on every processor, so
// that the sum is the same.
constexpr int WIDE = 16;
struct Wide {
  static constexpr int PARTS = WIDE / LANES;
  Floats part[PARTS];

  // The first ``valid`` of them, which may be more, the others ``fill``.
  static inline __attribute__((always_inline)) Wide load(const float* from, int64_t valid, float fill) {
    Wide x;
    for (int k = 0; k < PARTS; ++k) x.part[k] = load_part(from + k * LANES, valid - k * LANES, fill);
    return x;
  }

  inline __attribute__((always_inline)) void store(float* to, int64_t valid) const {
    for (int k = 0; k < PARTS; ++k) store_part(to + k * LANES, valid - k * LANES, part[k]);
  }

  // In a fixed order: halves onto each other.
  float total() const {
    float sums[WIDE];
    __builtin_memcpy(sums, part, sizeof sums);
    for (int half = WIDE / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    return sums[0];
  }

  float largest() const {
    float most = part[0][0];
    for (int k = 0; k < PARTS; ++k)
      for (int i = 0; i < LANES; ++i) most = part[k][i] > most ? part[k][i] : most;
    return most;
  }
};

}  // namespace
}  // namespace siafu
