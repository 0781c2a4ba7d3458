// Dense products, register-blocked after Goto & van de Geijn (ACM TOMS 34(3), 2008): a tile of the result stays in
// registers while packed panels of the right operand, which fit the first cache, stream past it. Each number of the result
// is summed in an order that depends on the shapes alone.
#include "dense.hpp"
#include "dense_pack.hpp"
#include "fused.hpp"
#include "lanes.hpp"
#if SIAFU_AMX
#include "dense_tiles.hpp"
#elif !SIAFU_AVX512BF16
#include "dense_passes.hpp"
#endif

namespace siafu {
namespace {

// Vectors in the widest panel: ROWS * PANEL sums, PANEL operands and a broadcast fill the registers. Words of a block of X W,
// so that a packed panel fits the first cache. Words of a block of X^T D, and bytes of the result that a chunk adds to, so
// that these, packed X and D, and their next rows fit the second cache.
#if SIAFU_AMX
constexpr int PANEL = 2, ROWS = 32, STEPS = 320, TRANSPOSED_STEPS = 128, TILES_NBYTES = 1024 << 10;
#else
constexpr int PANEL = 3, STEPS = 152, TRANSPOSED_STEPS = 88, TILES_NBYTES = 320 << 10;
#if SIAFU_AVX512 || SIAFU_AVX512BF16 || SIAFU_NEON
constexpr int ROWS = 8;
#else
constexpr int ROWS = 4;
#endif
#endif
// Columns of X that are packed together: a vector's, of which a tile takes a part.
constexpr int GROUP = LANES > ROWS ? LANES : ROWS;
using RightPanels = Panels<LANES, PANEL>;

// --- a tile ----------------------------------------------------------------------------------------------------------

struct Tile {
  const char* left;     // ROWS rows of words: packed [step][GROUP], or in rows ``left_stride`` bytes apart
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

#if !SIAFU_AMX
// A float, or two bfloat16, which may lie anywhere.
typedef float Word __attribute__((aligned(2), may_alias));

inline Floats multiply_add(Floats sum, float word, Floats other) {
#if SIAFU_AVX512BF16
  const __m512bh both = (__m512bh)_mm512_set1_ps(word);
  return (Floats)_mm512_dpbf16_ps((__m512)sum, both, (__m512bh)other);
#else
  return fused(other, word - Floats{}, sum);
#endif
}
#endif

template <int V>
inline __attribute__((always_inline)) void store_tile_row(const Tile& t, int64_t r, const Floats* sums) {
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

#if SIAFU_AMX
template <bool PACKED, int V>
void tile(const Tile& t) {
  alignas(64) float sums[ROWS * V * LANES];
  if (t.add)
    for (int64_t r = 0; r < t.rows; ++r)
      for (int v = 0; v < V; ++v) __builtin_prefetch(t.out + r * t.out_stride + v * 64, 1);
  sum_tile<V>((const float*)t.left, t.right, t.steps + t.odd, sums);
  for (int64_t r = 0; r < t.rows; ++r) store_tile_row<V>(t, r, (const Floats*)(sums + r * V * LANES));
}
#else
template <bool PACKED, int V>
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
      const float word = *(const Word*)(left[r] + (PACKED ? s * GROUP * 4 : s * 4));
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] = multiply_add(sums[r][v], word, other[v]);
    }
  }
  if (t.odd)
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const uint32_t half = *(const uint16_t*)(left[r] + t.steps * 4);
      float word;
      __builtin_memcpy(&word, &half, 4);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] = multiply_add(sums[r][v], word, right[v]);
    }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
    if (r < t.rows) store_tile_row<V>(t, r, sums[r]);
}
#endif

template <bool PACKED>
inline void run_tile(int64_t vectors, const Tile& t) {
  if constexpr (PANEL == 3)
    if (vectors == 3) return tile<PACKED, 3>(t);
  if (vectors == 2) return tile<PACKED, 2>(t);
  tile<PACKED, 1>(t);
}

// --- X W -------------------------------------------------------------------------------------------------------------

// The block of k, as numbers: from, and how many.
struct Block {
  int64_t from, size;

  Block(const Product& p, const Plan& plan, int64_t block) {
    from = block * plan.steps * PAIR;
    size = least(plan.steps * PAIR, p.k - from);
  }
};

float* packed_block(const Product& p, const Plan& plan, float* packed, int64_t block) {
  return packed + block * plan.steps * quotient(p.m, LANES) * LANES;
}

void pack_weights(const Product& p, const Plan& plan, float* packed, int64_t block) {
  const Block k(p, plan, block);
  const Rows W{p.right, p.right_stride, p.right_bits != 0};
  pack<LANES, PANEL>(W, k.from, k.size, 0, p.m, plan, p.rounds != 0, packed_block(p, plan, packed, block));
}

#if !SIAFU_AMX
// Rows as words [rows, plan.steps]: couples of bfloat16, or float32 rounded to it.
void copy_rows(const Rows& X, int64_t row, int64_t rows, const Block& k, int64_t steps, float* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k.size; i += LANES * PAIR) {
      const char* from = X.at(row + r, k.from + i);
      const int64_t valid = k.size - i;
#if SIAFU_AVX512BF16
      const __mmask32 mask = valid >= 32 ? ~0u : (1u << valid) - 1;
      _mm512_mask_storeu_epi16((char*)(to + r * steps) + i * 2, mask, couples(from, X.bits, valid));
#else
      const auto words = X.bits ? load_words<LANES, true>(from, valid) : rounded<LANES>(load_words<LANES, false>(from, valid));
      store_part(to + r * steps + i, valid, (Floats)words);
#endif
    }
}
#endif

inline void prefetch_rows(const char* first, int64_t stride, int64_t rows, int64_t nbytes) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < nbytes; i += 64) __builtin_prefetch(first + r * stride + i);
}

void multiply(const Product& p, const Plan& plan, const float* packed, float* scratch, int64_t chunk) {
  const int64_t first = chunk * plan.rows, rows = least(plan.rows, p.n - first);
  const bool copied = plan.left_words > 0;  // into scratch
  const Rows X{p.left, p.left_stride, p.left_bits != 0};
  const RightPanels panels(p.m);
#if SIAFU_AMX
  const Registers registers;
#endif
  Tile t;
  t.out_stride = p.out_stride;
  for (int64_t block = 0; block < plan.blocks; ++block) {
    const Block k(p, plan, block);
#if SIAFU_AMX
    pack_rows(X, first, rows, k.from, k.size, plan.steps, scratch);
#else
    if (copied) copy_rows(X, first, rows, k, plan.steps, scratch);
#endif
    t.left_stride = copied ? plan.steps * 4 : p.left_stride;
    t.steps = k.size / PAIR;
    t.odd = k.size % PAIR;
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
        t.left = copied ? (const char*)(scratch + r * plan.steps) : X.at(first + r, k.from);
        t.out = p.out + (first + r) * p.out_stride + column * 4;
        if (panel == 0 && !copied && r + ROWS < rows)
          prefetch_rows(t.left + ROWS * X.stride, X.stride, least(ROWS, rows - r - ROWS), t.steps * 4);
        run_tile<false>(vectors, t);
      }
    }
  }
}

// --- X^T D -----------------------------------------------------------------------------------------------------------

// Fetches the next block of both operands while the tiles of this one are computed, a few rows with each tile.
struct Ahead {
  Rows X, D;
  int64_t left_column, left_nbytes, right_column, right_nbytes;
  int64_t row, stop, rows_per_tile;

  void fetch() {
    const int64_t until = least(row + rows_per_tile, stop);
    for (; row < until; ++row) {
      prefetch_rows(X.at(row, left_column), 0, 1, left_nbytes);
      prefetch_rows(D.at(row, right_column), 0, 1, right_nbytes);
    }
  }
};

// One range of rows, some of X's columns and some of D's. The sums go into ``partial`` [ranges, k, m], or into ``out`` if
// that is null.
void multiply_transposed(const Product& p, const Plan& plan, float* partial, float* scratch, int64_t chunk) {
  const int64_t range = chunk % plan.blocks, tile = chunk / plan.blocks, of_left = quotient(p.k, plan.columns);
  const int64_t column = tile % of_left * plan.columns, columns = least(plan.columns, p.k - column);
  const int64_t right_column = tile / of_left * plan.width, width = least(plan.width, p.m - right_column);
  const int64_t start = range * plan.rows, stop = least(start + plan.rows, p.n), size = plan.steps * PAIR;
  const Rows X{p.left, p.left_stride, p.left_bits != 0}, D{p.right, p.right_stride, p.right_bits != 0};
  const RightPanels panels(width);
  char* out = partial ? (char*)(partial + range * p.k * p.m) : p.out;
  float *left = scratch, *right = scratch + plan.left_words;
  Ahead ahead{X, D, column, columns * (X.bits ? 2 : 4), right_column, width * (D.bits ? 2 : 4), 0, 0,
              quotient(size, panels.count * quotient(columns, ROWS))};
#if SIAFU_AMX
  const Registers registers;
#endif
  Tile t;
  t.out_stride = partial ? p.m * 4 : p.out_stride;
  t.left_stride = 0, t.odd = false, t.relu = false, t.bias = nullptr;
  for (int64_t row = start; row < stop; row += size) {
    const int64_t rows = least(size, stop - row);
#if SIAFU_AMX
    pack_columns(X, row, rows, column, columns, plan.steps, left);
#else
    pack<GROUP, 1>(X, row, rows, column, columns, plan, p.rounds != 0, left);
#endif
    pack<LANES, PANEL>(D, row, rows, right_column, width, plan, p.rounds != 0, right);
    ahead.row = row + size, ahead.stop = least(ahead.row + size, stop);
    t.steps = quotient(rows, PAIR);
    t.add = row > start || (!partial && p.add);
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      const int64_t from = panels.first(panel), vectors = panels.first(panel + 1) - from;
      t.right = right + from * LANES * plan.steps;
      t.columns = least(vectors * LANES, width - from * LANES);
      for (int64_t c = 0; c < columns; c += ROWS) {
        t.rows = least(ROWS, columns - c);
        t.left = (const char*)(left + c / GROUP * GROUP * plan.steps + c % GROUP);
        t.out = out + (column + c) * t.out_stride + (right_column + from * LANES) * 4;
        ahead.fetch();
        run_tile<true>(vectors, t);
      }
    }
  }
}

}  // namespace

extern const DenseTable SIAFU_PASTE(dense_rows_, SIAFU_ISA) = {
    LANES, GROUP, PAIR, DEEP, STEPS, TRANSPOSED_STEPS, TILES_NBYTES, pack_weights, multiply, multiply_transposed,
#if !SIAFU_AVX512BF16
    relu, relu_backward, cross_entropy, column_sums,
#endif
};

}  // namespace siafu
