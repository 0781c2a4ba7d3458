// Edges of a row range and what a row becomes when they are through, for one instruction set: shared by the sources that
// add edges (attention_add.hpp) and by attention_rows.cpp.
#pragma once
#include "attention.hpp"
#include "attention_lanes.hpp"

namespace {

using siafu::ATTEND;
using siafu::BACKWARD;
using siafu::Pass;

constexpr int MAX_HEADS = W;  // of one pass: what one permutation reaches
#if defined(SIAFU_AVX2)
constexpr int VECTORS = 4;  // of columns: sums of more do not fit 16 registers
#else
constexpr int VECTORS = 8;
#endif
// Every instruction set makes the same bits, although passes have as many columns and heads as its registers hold: the order of
// a row's sums over edges is the call's (attention.cpp: pass_of), and a head that two passes share is cut at one of these.
constexpr int BLOCK = 32;
static_assert(VECTORS * W % BLOCK == 0, "where heads are cut");
constexpr int LINE = 64;
constexpr int MOST_SCORES = W < 8 ? 8 : W;

// Of one row, by head.
struct State {
  alignas(64) float reference[MOST_SCORES], total[MOST_SCORES], leaned[MOST_SCORES];
};

SIAFU_INLINE const char* row_of(const Pass& p, int64_t column) {
  return p.rows + column * p.row_bytes;
}

SIAFU_INLINE const char* scores_of(const Pass& p, int64_t column) {
  return p.scores + column * p.score_bytes;
}

// f(0), f(1) ... f(N - 1), where each number is a constant: arrays that are indexed with them become registers.
template <int I>
struct Constant {
  static constexpr int value = I;
};

template <int N, int I = 0, class F>
SIAFU_INLINE void each(const F& f) {
  if constexpr (I < N) {
    f(Constant<I>{});
    each<N, I + 1>(f);
  }
}

// Where a row's first coefficient, or product, lies among those of the range.
SIAFU_INLINE int64_t place_of(const Pass& p, int64_t row) {
  return p.indptr[row] - p.indptr[p.start] + (p.add_self ? row - p.start : 0);
}

// Where the rows and scores of a unit's next edges lie. While an edge is added, the one `ahead` of it is told to the
// cache: evenly, for a processor waits for few lines at a time; across rows, so that short ones lose nothing.
struct Stream {
  static constexpr int SIZE = 64, MASK = SIZE - 1;  // at least ahead + W
  const char* row[SIZE];
  const char* scores[SIZE];
  int64_t next, last;  // edges

  Stream(const Pass& p, int64_t first, int64_t end) : next(first), last(end) {
    for (int i = 0; i < SIZE; ++i) row[i] = row_of(p, 0), scores[i] = scores_of(p, 0);  // read behind the last edge
  }

  // LINES: of a row's columns. Scores that lie beside them are lines of their own. drops: whether there is dropout.
  template <int MODE, int LINES>
  SIAFU_INLINE void fetch(const Pass& p, bool drops) {
    if (next >= last) return;
    const int64_t column = p.indices[next];
    const char *at = row_of(p, column), *marks = scores_of(p, column);
    row[next & MASK] = at, scores[next & MASK] = marks;
    ++next;
    if (p.far)
      each<LINES>([&](auto i) SIAFU_LAMBDA { __builtin_prefetch(at + i.value * LINE, 0, 2); });
    else
      each<LINES>([&](auto i) SIAFU_LAMBDA { __builtin_prefetch(at + i.value * LINE); });
    if (p.loose) __builtin_prefetch(at + p.columns * p.value_bytes - 1);
    if (drops) __builtin_prefetch(p.ids + column);
    __builtin_prefetch(marks);
    if (MODE == BACKWARD) __builtin_prefetch(marks + 8 * p.score_step + 4 * p.heads - 1);
  }

  template <int MODE, int LINES>
  SIAFU_INLINE void fetch_until(const Pass& p, int64_t edge, bool drops) {
    while (next < edge && next < last) fetch<MODE, LINES>(p, drops);
  }
};

// SplitMix64's finaliser, as ops.py has it; of one counter or of a vector of them.
template <class T>
SIAFU_INLINE void mix(T& x) {
  x ^= x >> 30, x *= 0xBF58476D1CE4E5B9;
  x ^= x >> 27, x *= 0x94D049BB133111EB;
  x ^= x >> 31;
}

// Turns edges' counters into 16 random bits for each of four heads, from the pass's head 4 * quad on.
template <class T>
SIAFU_INLINE void draw(const Pass& p, T& x, int quad) {
  x += quad * p.heads_step;
  T next = x + p.heads_step;
  mix(x);
  if (__builtin_expect(p.drop_shift == 0, 1)) return;
  mix(next);
  x = x >> p.drop_shift | next << (64 - p.drop_shift);
}

SIAFU_INLINE uint64_t counter_of(const Pass& p, int64_t row, int64_t column) {
  return p.key + static_cast<uint64_t>(p.ids[row]) * p.row_step +
         static_cast<uint64_t>(p.ids[column]) * p.column_step;
}

SIAFU_INLINE void scale_columns(const Pass& p, float* row, const float* by_head) {
  int j = 0;
  for (; j + W <= p.columns; j += W) store(row + j, load(row + j) * pick<W>(by_head, load(p.head_of + j)));
  for (; j < p.columns; ++j) row[j] *= by_head[p.head_of[j]];
}

template <class A, class B>
SIAFU_INLINE float dot(const A* a, const B* b, int n) {
  constexpr int PARTS = 16 / W;
  Floats products[PARTS] = {};
  int j = 0;
  for (; j + 16 <= n; j += 16)
    for (int k = 0; k < PARTS; ++k)
      products[k] = fused(load(a + j + k * W), load(b + j + k * W), products[k]);
  if (j < n)
    for (int k = 0; k < PARTS; ++k, j += W) {
      const int left = n - j < W ? n - j < 0 ? 0 : n - j : W;
      const Floats x = left == W ? load(a + j) : load_part(a + j, left), y = left == W ? load(b + j) : load_part(b + j, left);
      products[k] = fused(x, y, products[k]);
    }
  return total(products);
}

// to += dot(a, b), block by block: a head that passes share is cut between two of them.
template <class A>
SIAFU_INLINE void add_dots(const A* a, const float* b, int n, float& to) {
  for (int j = 0; j < n; j += BLOCK) to += dot(a + j, b + j, n - j < BLOCK ? n - j : BLOCK);
}

// The pass's columns of its head h begin there.
SIAFU_INLINE int head_begin(const Pass& p, int h) {
  const int begin = h * p.width - p.cut;
  return begin < 0 ? 0 : begin < p.columns ? begin : p.columns;
}

// Divides by the sums, or multiplies with the row's own, and writes what is per head.
template <int MODE>
__attribute__((noinline)) void finish(const Pass& p, int64_t row, const State& s, float* out, float* leaned) {
  const int64_t place = (row - p.start) * p.total_step;
  if (MODE == ATTEND && p.alpha) {  // they add up to 1 already
    for (int h = 0; h < p.heads && p.leaned; ++h) p.leaned_total[place + h] = s.leaned[h];
  } else if (MODE == ATTEND) {
    alignas(64) float log_total[W], inverse[W];
    const Floats total = load(s.total);
    const Ints some = total > 0.0f;
    store(inverse, some ? 1.0f / total : Floats{});
    store(log_total, some ? load(s.reference) + logarithm(total) : splat(__builtin_inff()));
    scale_columns(p, out, inverse);
    for (int h = 0; h < p.heads; ++h) p.total[place + h] = log_total[h];
    if (!p.leaned) return;
    scale_columns(p, leaned, inverse);
    for (int h = 0; h < p.heads; ++h) p.leaned_total[place + h] = s.leaned[h] * inverse[h];
  }
  if (MODE == BACKWARD && p.own_rows) {
    const char* own = p.own_rows + row * p.own_row_bytes;
    for (int h = 0; h < p.heads; ++h) {
      const int begin = head_begin(p, h), n = head_begin(p, h + 1) - begin;
      float& to = p.leaned_total[place + h];
      if (h > 0 || p.cut == 0) to = -s.leaned[h];  // else an earlier pass has begun it
      p.own_bits16 ? add_dots(reinterpret_cast<const Bfloat16*>(own) + begin, leaned + begin, n, to)
                   : add_dots(reinterpret_cast<const float*>(own) + begin, leaned + begin, n, to);
    }
  }
}

}  // namespace
