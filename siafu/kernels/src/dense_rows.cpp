// Dense products, register-blocked after Goto & van de Geijn (ACM TOMS 34(3), 2008): a tile of the result stays in
// registers while packed panels of the right operand, which fit the first cache, stream past it. Each number of the result
// is summed in an order that depends on the shapes alone.
#include "dense.hpp"
#include "dense_passes.hpp"
#include "lanes.hpp"

#if SIAFU_AVX512BF16
#include <immintrin.h>
#endif

namespace siafu {
namespace {

constexpr int PANEL = 3;  // vectors in the widest panel: ROWS * PANEL sums, PANEL operands and a broadcast fill the registers
#if SIAFU_AVX512 || SIAFU_AVX512BF16 || SIAFU_NEON
constexpr int ROWS = 8;
#else
constexpr int ROWS = 4;
#endif
#if SIAFU_AVX512BF16
constexpr int PAIR = 2;
#else
constexpr int PAIR = 1;
#endif

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t quotient(int64_t a, int64_t b) { return (a + b - 1) / b; }  // rounded up

// --- packing ---------------------------------------------------------------------------------------------------------

// Rows of one operand, as they are in memory.
struct Rows {
  const char* first;
  int64_t stride;  // bytes
  bool bits;

  const char* at(int64_t row, int64_t column) const { return first + row * stride + column * (bits ? 2 : 4); }
};

// How ``columns`` are cut into panels: of ``widest`` vectors or, so that none is left thin, one fewer.
struct Panels {
  int64_t vectors, count;

  Panels(int64_t columns, int lanes, int widest) {
    vectors = quotient(columns, lanes);
    count = quotient(vectors, widest);
  }
  int64_t first(int64_t panel) const { return panel * (vectors / count) + least(panel, vectors % count); }
};

// L numbers from ``from`` on as the bits of float32, zeros beyond ``valid``.
template <int L>
inline typename Lanes<L>::Words load_words(const char* from, bool bits, int64_t valid) {
  using Words = typename Lanes<L>::Words;
  if (bits) {
    if (valid >= L) return __builtin_convertvector(*(const typename Lanes<L>::LooseHalves*)from, Words) << 16;
    Words words = {};
    for (int64_t i = 0; i < valid; ++i) words[i] = (uint32_t)((const uint16_t*)from)[i] << 16;
    return words;
  }
  if (valid >= L) return *(const typename Lanes<L>::LooseWords*)from;
  Words words = {};
  for (int64_t i = 0; i < valid; ++i) words[i] = ((const uint32_t*)from)[i];
  return words;
}

// To the nearest bfloat16, ties to even; NaN stays NaN.
template <int L>
inline typename Lanes<L>::Words rounded(typename Lanes<L>::Words w) {
  using Words = typename Lanes<L>::Words;
  const Words nearest = w + 0x7fffu + ((w >> 16) & 1u);
  const Words is_nan = (Words)((w & 0x7fffffffu) > 0x7f800000u);
  return ((nearest & ~is_nan) | ((w | 0x400000u) & is_nan)) & 0xffff0000u;
}

// Packs ``rows`` x ``columns`` from (row, column) on into panels [panel][step][vectors of the panel][L], each of ``steps``
// steps. ``rounds``: to bfloat16. ``pair`` rows make a step; beyond the last row are zeros.
template <int L, int WIDEST>
void pack(const Rows& from, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t pair, bool rounds,
          int64_t steps, float* to) {
  using Words = typename Lanes<L>::Words;
  const Panels panels(columns, L, WIDEST);
  for (int64_t step = 0; step * pair < rows; ++step) {
    const char* low = from.at(row + step * pair, column);
    const bool both = pair == 2 && step * 2 + 1 < rows;
    const int64_t width = from.bits ? 2 : 4;
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      const int64_t first = panels.first(panel), vectors = panels.first(panel + 1) - first;
      float* place = to + (first * steps + step * vectors) * L;
      for (int64_t v = first; v < first + vectors; ++v, place += L) {
        const char* here = low + v * L * width;
        Words words = load_words<L>(here, from.bits, columns - v * L);
        if (rounds) words = rounded<L>(words);
        if (pair == 2) {
          words >>= 16;
          if (both) {
            const Words high = load_words<L>(here + from.stride, from.bits, columns - v * L);
            words |= rounds ? rounded<L>(high) : high;
          }
        }
        *(Words*)place = words;
      }
    }
  }
}

// --- a tile ----------------------------------------------------------------------------------------------------------

struct Tile {
  const char* left;     // ROWS rows of words: packed [step][ROWS], or in rows ``left_stride`` bytes apart
  int64_t left_stride;
  const float* right;   // packed [step][V][LANES]
  int64_t steps;
  bool odd;             // one more step, of half a pair
  int64_t rows, columns;  // of the result that exist
  char* out;
  int64_t out_stride;
  bool add, relu;
  const float* bias;  // from the tile's first column on, or null
};

struct Number {};  // a word is a float
struct Couple {};  // a word is two bfloat16

inline Floats multiply_add(Floats sum, float word, Floats other, Number) { return sum + other * word; }

#if SIAFU_AVX512BF16
inline Floats multiply_add(Floats sum, float word, Floats other, Couple) {
  const __m512bh both = (__m512bh)_mm512_set1_ps(word);
  return (Floats)_mm512_dpbf16_ps((__m512)sum, both, (__m512bh)other);
}
#endif

inline void store_tile_row(const Tile& t, int64_t r, const Floats* sums, int V) {
  float* out = (float*)(t.out + r * t.out_stride);
  for (int v = 0; v < V; ++v) {
    const int64_t valid = t.columns - v * LANES;
    Floats x = sums[v];
    if (t.add) x += load_part(out + v * LANES, valid, 0.0f);
    if (t.bias) x += load_part(t.bias + v * LANES, valid, 0.0f);
    if (t.relu) x = x < 0.0f ? Floats{} : x;  // NaN stays NaN
    store_part(out + v * LANES, valid, x);
  }
}

template <class Word, bool PACKED, int V>
void tile(const Tile& t) {
  const char* left[ROWS];
  for (int r = 0; r < ROWS; ++r) left[r] = t.left + (PACKED ? r * 4 : least(r, t.rows - 1) * t.left_stride);
  if (t.add)
    for (int64_t r = 0; r < t.rows; ++r) __builtin_prefetch(t.out + r * t.out_stride, 1);
  Floats sums[ROWS][V] = {};
  const Floats* right = (const Floats*)t.right;
  for (int64_t s = 0; s < t.steps; ++s, right += V) {
    Floats other[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) other[v] = right[v];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const float word = *(const float*)(left[r] + (PACKED ? s * ROWS * 4 : s * 4));
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] = multiply_add(sums[r][v], word, other[v], Word());
    }
  }
  if (t.odd)
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const uint32_t half = *(const uint16_t*)(left[r] + t.steps * 4);
      float word;
      __builtin_memcpy(&word, &half, 4);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] = multiply_add(sums[r][v], word, right[v], Word());
    }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
    if (r < t.rows) store_tile_row(t, r, sums[r], V);
}

template <class Word, bool PACKED>
inline void tile_of(int64_t vectors, const Tile& t) {
  if (vectors == 3) return tile<Word, PACKED, 3>(t);
  if (vectors == 2) return tile<Word, PACKED, 2>(t);
  tile<Word, PACKED, 1>(t);
}

template <bool PACKED>
inline void run_tile(int64_t pair, int64_t vectors, const Tile& t) {
#if SIAFU_AVX512BF16
  if (pair == 2) return tile_of<Couple, PACKED>(vectors, t);
#endif
  tile_of<Number, PACKED>(vectors, t);
}

// --- X W -------------------------------------------------------------------------------------------------------------

// The block of k, as numbers: from, and how many.
struct Block {
  int64_t from, size;

  Block(const Product& p, const Plan& plan, int64_t block) {
    from = block * plan.steps * plan.pair;
    size = least(plan.steps * plan.pair, p.k - from);
  }
};

float* packed_block(const Product& p, const Plan& plan, float* packed, int64_t block) {
  return packed + block * plan.steps * quotient(p.m, LANES) * LANES;
}

void pack_weights(const Product& p, const Plan& plan, float* packed, int64_t block) {
  const Block k(p, plan, block);
  const Rows W{p.right, p.right_stride, p.right_bits != 0};
  pack<LANES, PANEL>(W, k.from, k.size, 0, p.m, plan.pair, p.left_bits != 0, plan.steps,
                     packed_block(p, plan, packed, block));
}

// bfloat16 rows as float32 [rows, plan.steps], for processors that do not multiply bfloat16.
void widen(const Rows& X, int64_t row, int64_t rows, const Block& k, int64_t steps, float* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k.size; i += LANES) {
      const auto words = load_words<LANES>(X.at(row + r, k.from + i), true, k.size - i);
      store_part(to + r * steps + i, k.size - i, (Floats)words);
    }
}

inline void prefetch_rows(const char* first, int64_t stride, int64_t rows, int64_t nbytes) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < nbytes; i += 64) __builtin_prefetch(first + r * stride + i);
}

void multiply(const Product& p, const Plan& plan, const float* packed, float* scratch, int64_t chunk) {
  const int64_t first = chunk * plan.rows, rows = least(plan.rows, p.n - first);
  const bool widens = p.left_bits && plan.pair == 1;
  const Rows X{p.left, p.left_stride, p.left_bits != 0};
  const Panels panels(p.m, LANES, PANEL);
  Tile t;
  t.out_stride = p.out_stride;
  for (int64_t block = 0; block < plan.blocks; ++block) {
    const Block k(p, plan, block);
    if (widens) widen(X, first, rows, k, plan.steps, scratch);
    t.left_stride = widens ? plan.steps * 4 : p.left_stride;
    t.steps = k.size / plan.pair;
    t.odd = k.size % plan.pair;
    t.add = p.add || block > 0;
    const bool last = block == plan.blocks - 1;
    t.relu = p.relu && last;
    const float* right = packed_block(p, plan, (float*)packed, block);
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      const int64_t from = panels.first(panel), vectors = panels.first(panel + 1) - from, column = from * LANES;
      t.right = right + column * plan.steps;
      t.columns = least(vectors * LANES, p.m - column);
      t.bias = p.bias && last ? p.bias + column : nullptr;
      for (int64_t r = 0; r < rows; r += ROWS) {
        t.rows = least(ROWS, rows - r);
        t.left = widens ? (const char*)(scratch + r * plan.steps) : X.at(first + r, k.from);
        t.out = p.out + (first + r) * p.out_stride + column * 4;
        if (panel == 0 && !widens && r + ROWS < rows)
          prefetch_rows(t.left + ROWS * X.stride, X.stride, least(ROWS, rows - r - ROWS), t.steps * 4);
        run_tile<false>(plan.pair, vectors, t);
      }
    }
  }
}

// --- X^T D -----------------------------------------------------------------------------------------------------------

// One range of rows, one range of X's columns. Its sums go into ``partial`` [ranges, k, m], or into ``out`` if that is null.
void multiply_transposed(const Product& p, const Plan& plan, float* partial, float* scratch, int64_t chunk) {
  const int64_t range = chunk % plan.blocks, column = chunk / plan.blocks * plan.columns;
  const int64_t columns = least(plan.columns, p.k - column);
  const int64_t stop = least((range + 1) * plan.rows, p.n), size = plan.steps * plan.pair;
  const Rows X{p.left, p.left_stride, p.left_bits != 0}, D{p.right, p.right_stride, p.right_bits != 0};
  const Panels panels(p.m, LANES, PANEL);
  char* out = partial ? (char*)(partial + range * p.k * p.m) : p.out;
  float *left = scratch, *right = scratch + plan.left_words;
  Tile t;
  t.out_stride = partial ? p.m * 4 : p.out_stride;
  t.left_stride = 0, t.odd = false, t.relu = false, t.bias = nullptr;
  for (int64_t row = range * plan.rows; row < stop; row += size) {
    const int64_t rows = least(size, stop - row);
    pack<ROWS, 1>(X, row, rows, column, columns, plan.pair, false, plan.steps, left);
    pack<LANES, PANEL>(D, row, rows, 0, p.m, plan.pair, p.left_bits != 0, plan.steps, right);
    t.steps = quotient(rows, plan.pair);
    t.add = row > range * plan.rows || (!partial && p.add);
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      const int64_t from = panels.first(panel), vectors = panels.first(panel + 1) - from;
      t.right = right + from * LANES * plan.steps;
      t.columns = least(vectors * LANES, p.m - from * LANES);
      for (int64_t c = 0; c < columns; c += ROWS) {
        t.rows = least(ROWS, columns - c);
        t.left = (const char*)(left + c * plan.steps);
        t.out = out + (column + c) * t.out_stride + from * LANES * 4;
        run_tile<true>(plan.pair, vectors, t);
      }
    }
  }
}

}  // namespace

extern const DenseTable SIAFU_PASTE(dense_rows_, SIAFU_ISA) = {
    LANES, ROWS, PAIR, pack_weights, multiply, multiply_transposed, bias_relu, relu_backward, cross_entropy, column_sums,
};

}  // namespace siafu
