// Packing of dense_rows.cpp: rows of float32 or bfloat16 become panels of words, in the order in which tiles read them.
#pragma once
#include "dense.hpp"
#include "lanes.hpp"

namespace siafu {
namespace {

// Numbers of the summed dimension in a word.
#if SIAFU_AVX512BF16
constexpr int PAIR = 2;
#else
constexpr int PAIR = 1;
#endif
// Words along it are a multiple of so many.
#if SIAFU_AMX
constexpr int DEEP = 16;
#else
constexpr int DEEP = 1;
#endif

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t quotient(int64_t a, int64_t b) { return (a + b - 1) / b; }  // rounded up

// Rows of one operand, as they are in memory.
struct Rows {
  const char* first;
  int64_t stride;  // bytes
  bool bits;

  const char* at(int64_t row, int64_t column) const { return first + row * stride + column * (bits ? 2 : 4); }
};

// How columns are cut into panels: of WIDEST vectors or, so that none is left thin, one fewer.
template <int L, int WIDEST>
struct Panels {
  int64_t vectors, count, thin, wider;  // each has ``thin`` vectors, the first ``wider`` ones one more

  explicit Panels(int64_t columns)
      : vectors(quotient(columns, L)), count(quotient(vectors, WIDEST)), thin(vectors / count), wider(vectors % count) {}

  int64_t first(int64_t panel) const { return WIDEST == 1 ? panel : panel * thin + least(panel, wider); }
};

// L numbers from ``from`` on as the bits of float32, zeros beyond ``valid``.
template <int L, bool BITS>
inline typename Lanes<L>::Words load_words(const char* from, int64_t valid) {
  using Words = typename Lanes<L>::Words;
  if (valid >= L) {
    if (BITS) return __builtin_convertvector(*(const typename Lanes<L>::LooseHalves*)from, Words) << 16;
    return *(const typename Lanes<L>::LooseWords*)from;
  }
#if SIAFU_AVX512 || SIAFU_AVX512BF16
  static_assert(L == 16, "masks of 16 lanes");
  const __mmask16 mask = (__mmask16)((1u << valid) - 1);
  using Halves = typename Lanes<L>::Halves;
  if (BITS) return __builtin_convertvector((Halves)_mm256_maskz_loadu_epi16(mask, from), Words) << 16;
  return (Words)_mm512_maskz_loadu_epi32(mask, from);
#else
  Words words = {};
  for (int64_t i = 0; i < valid; ++i)
    words[i] = BITS ? (uint32_t)((const uint16_t*)from)[i] << 16 : ((const uint32_t*)from)[i];
  return words;
#endif
}

// To the nearest bfloat16, ties to even; NaN stays NaN.
template <int L>
inline typename Lanes<L>::Words rounded(typename Lanes<L>::Words w) {
  using Words = typename Lanes<L>::Words;
  const Words nearest = w + 0x7fffu + ((w >> 16) & 1u);
  const Words is_nan = (Words)((w & 0x7fffffffu) > 0x7f800000u);
  return ((nearest & ~is_nan) | ((w | 0x400000u) & is_nan)) & 0xffff0000u;
}

#if SIAFU_AVX512BF16
// 32 bfloat16 from ``from`` on, zeros beyond ``valid``.
inline __m512i couples(const char* from, bool bits, int64_t valid) {
  if (bits) return _mm512_maskz_loadu_epi16(valid >= 32 ? ~0u : (1u << valid) - 1, from);
  const auto low = load_words<16, false>(from, valid);
  const auto high = valid > 16 ? load_words<16, false>(from + 64, valid - 16) : decltype(low){};
  return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);  // subnormal numbers become 0
}

// Couples of bfloat16, from two rows.
struct Coupled {
  template <int L, bool BITS>
  static typename Lanes<L>::Words words(const char* low, const char* high, int64_t valid) {
    using Words = typename Lanes<L>::Words;
    const Words a = load_words<L, BITS>(low, valid), b = high ? load_words<L, BITS>(high, valid) : Words{};
    if (BITS) return (a >> 16) | b;
    alignas(64) static const uint16_t zip[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                 8,  24, 9,  25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);  // subnormal numbers become 0
    return (Words)_mm512_permutexvar_epi16(_mm512_load_si512(zip), both);
  }
};
#else
// Numbers as they are.
struct Plain {
  template <int L, bool BITS>
  static typename Lanes<L>::Words words(const char* low, const char*, int64_t valid) {
    return load_words<L, BITS>(low, valid);
  }
};

// Rounded to bfloat16.
struct Rounded {
  template <int L, bool BITS>
  static typename Lanes<L>::Words words(const char* low, const char*, int64_t valid) {
    return rounded<L>(load_words<L, BITS>(low, valid));
  }
};
#endif

// Packs ``rows`` x ``columns`` from (row, column) on into panels [panel][step][vectors of the panel][L], each with room
// for ``steps`` steps. Beyond the last row and column are zeros.
template <int L, int WIDEST, class How, bool BITS>
void pack(const Rows& from, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t steps, float* to) {
  const Panels<L, WIDEST> panels(columns);
  const int64_t width = BITS ? 2 : 4;
  const int64_t stop = quotient(rows, PAIR * DEEP) * DEEP;
  for (int64_t step = 0; step < stop; ++step) {
    const bool is_there = DEEP == 1 || step * PAIR < rows;
    const char* low = from.at(row + step * PAIR, column);
    const char* high = step * PAIR + 1 < rows ? low + from.stride : nullptr;
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      const int64_t first = panels.first(panel), last = panels.first(panel + 1);
      float* place = to + (first * steps + step * (last - first)) * L;
      for (int64_t v = first; v < last; ++v, place += L)
        *(typename Lanes<L>::Words*)place =
            is_there ? How::template words<L, BITS>(low + v * L * width, high ? high + v * L * width : nullptr,
                                                    columns - v * L)
                     : typename Lanes<L>::Words{};
    }
  }
}

// As the instruction set wants it: couples of bfloat16, or one float32 a step, rounded if ``rounds``.
template <int L, int WIDEST>
void pack(const Rows& from, int64_t row, int64_t rows, int64_t column, int64_t columns, const Plan& plan, bool rounds,
          float* to) {
  const int64_t steps = plan.steps;
#if SIAFU_AVX512BF16
  from.bits ? pack<L, WIDEST, Coupled, true>(from, row, rows, column, columns, steps, to)
            : pack<L, WIDEST, Coupled, false>(from, row, rows, column, columns, steps, to);
#else
  if (from.bits) return pack<L, WIDEST, Plain, true>(from, row, rows, column, columns, steps, to);
  if (rounds) return pack<L, WIDEST, Rounded, false>(from, row, rows, column, columns, steps, to);
  pack<L, WIDEST, Plain, false>(from, row, rows, column, columns, steps, to);
#endif
}

}  // namespace
}  // namespace siafu
