// Tiles of dense_rows.cpp in AMX's registers, each of 16 rows of 16 words: a product of two takes 16 cycles (Intel's manual,
// volume 2, TDPBF16PS). Four registers sum 32 x 32 numbers, two hold left rows and two hold right columns.
#pragma once
#include <immintrin.h>

#include "dense_pack.hpp"

namespace siafu {
namespace {

constexpr int SIDE = 16;  // of a register, in rows and in words
constexpr int REGISTER = SIDE * SIDE;

// The compiler must have written ``memory``, and read it anew behind: GCC does not know what its functions for tiles touch.
inline void is_touched(const void* memory) { __asm__ volatile("" : : "r"(memory) : "memory"); }

// Shapes a thread's registers, and releases them at the end: while they are in use, each switch of threads saves 8 KB.
struct Registers {
  Registers() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t nbytes[16] = {};
      uint8_t rows[16] = {};
    } shapes;
    for (int i = 0; i < 8; ++i) shapes.nbytes[i] = SIDE * 4, shapes.rows[i] = SIDE;
    is_touched(&shapes);
    _tile_loadconfig(&shapes);
  }
  ~Registers() { _tile_release(); }
};

// 16 x 16 words, transposed in place. GCC 12 warns of the forms without a mask.
inline void transpose(__m512i* w) {
  const auto low = [](__m512i a, __m512i b) { return _mm512_maskz_unpacklo_epi32(0xffff, a, b); };
  const auto high = [](__m512i a, __m512i b) { return _mm512_maskz_unpackhi_epi32(0xffff, a, b); };
  const auto low_pairs = [](__m512i a, __m512i b) { return _mm512_maskz_unpacklo_epi64(0xff, a, b); };
  const auto high_pairs = [](__m512i a, __m512i b) { return _mm512_maskz_unpackhi_epi64(0xff, a, b); };
  const auto even = [](__m512i a, __m512i b) { return _mm512_maskz_shuffle_i32x4(0xffff, a, b, 0x88); };
  const auto odd = [](__m512i a, __m512i b) { return _mm512_maskz_shuffle_i32x4(0xffff, a, b, 0xdd); };
  __m512i fours[SIDE];  // 4 x 4 words each, transposed
  for (int i = 0; i < SIDE; i += 4) {
    const __m512i a = low(w[i], w[i + 1]), b = high(w[i], w[i + 1]);
    const __m512i c = low(w[i + 2], w[i + 3]), d = high(w[i + 2], w[i + 3]);
    fours[i] = low_pairs(a, c), fours[i + 1] = high_pairs(a, c);
    fours[i + 2] = low_pairs(b, d), fours[i + 3] = high_pairs(b, d);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i a = even(fours[i], fours[i + 4]), b = odd(fours[i], fours[i + 4]);
    const __m512i c = even(fours[i + 8], fours[i + 12]), d = odd(fours[i + 8], fours[i + 12]);
    w[i] = even(a, c), w[i + 8] = odd(a, c);
    w[i + 4] = even(b, d), w[i + 12] = odd(b, d);
  }
}

// Left operands are packed as [group of 32 rows][16 words][half of the group][row][word], so that each register lies in one
// piece. Beyond the last row and word are zeros.
inline float* packed_left(float* to, int64_t steps, int64_t group, int64_t step, int64_t half) {
  return to + group * 2 * SIDE * steps + step * 2 * SIDE + half * REGISTER;
}

// ``rows`` of X, of ``columns`` numbers each from (row, column) on.
void pack_rows(const Rows& X, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t steps, float* to) {
  const int64_t stop = quotient(rows, 2 * SIDE) * 2 * SIDE;
  for (int64_t r = 0; r < stop; ++r)
    for (int64_t i = 0; i < columns; i += SIDE * PAIR) {
      float* place = packed_left(to, steps, r / (2 * SIDE), i / PAIR, r / SIDE % 2) + r % SIDE * SIDE;
      _mm512_store_si512(place, r < rows ? couples(X.at(row + r, column + i), X.bits, columns - i) : __m512i{});
    }
}

// ``columns`` of X, of ``rows`` numbers each from (row, column) on: a word is a couple of one column.
void pack_columns(const Rows& X, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t steps, float* to) {
  for (int64_t step = 0; step * PAIR < rows; step += SIDE)
    for (int64_t first = 0; first < quotient(columns, 2 * SIDE) * 2 * SIDE; first += SIDE) {
      __m512i words[SIDE] = {};
      for (int64_t i = 0; i < SIDE && first < columns; ++i) {
        const int64_t at = (step + i) * PAIR;
        if (at >= rows) break;
        const char* low = X.at(row + at, column + first);
        const char* high = at + 1 < rows ? low + X.stride : nullptr;
        words[i] = X.bits ? (__m512i)Coupled::words<SIDE, true>(low, high, columns - first)
                          : (__m512i)Coupled::words<SIDE, false>(low, high, columns - first);
      }
      transpose(words);
      float* place = packed_left(to, steps, first / (2 * SIDE), step, first / SIDE % 2);
      for (int64_t i = 0; i < SIDE; ++i) _mm512_store_si512(place + i * SIDE, words[i]);
    }
}

// The sums of 32 packed rows and V vectors' columns over so many words: [32][V][16].
template <int V>
void sum_tile(const float* left, const float* right, int64_t words, float* sums) {
  is_touched(left);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < words; step += SIDE, left += 2 * REGISTER, right += V * REGISTER) {
    _tile_loadd(4, left, 64);
    _tile_loadd(5, left + REGISTER, 64);
    _tile_loadd(6, right, V * 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    if (V == 1) continue;
    _tile_loadd(7, right + LANES, V * 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, V * 64);
  _tile_stored(2, sums + V * REGISTER, V * 64);
  if (V > 1) {
    _tile_stored(1, sums + LANES, V * 64);
    _tile_stored(3, sums + V * REGISTER + LANES, V * 64);
  }
  is_touched(sums);
}

}  // namespace
}  // namespace siafu
