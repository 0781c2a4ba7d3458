// Rows of attention for one instruction set: every edge is read once, its score is made again where it is needed, and no
// tensor over the edges exists.
//
// Edges are taken in batches. First the scores of a batch are copied side by side, head after head, edge after edge, so that
// one vector of exponentials serves several edges; then the rows are summed, each column with the weight of its head.
//
// The softmax needs no pass of its own: weights are e^(score - reference), where the reference of a row and head is its
// first edge's score, until a score comes that is more than MARGIN above it. Then sums are scaled to the greater reference.
// The reference is never above the maximum, so that nothing that counts is lost to underflow; and e^MARGIN leaves room for
// sums over 2^31 edges.
#include "attention.hpp"

#ifdef SIAFU_AVX512BF16

namespace siafu {
const AttentionTable attention_rows_avx512bf16 = attention_rows_avx512;  // nothing here multiplies bfloat16
}

#else

#include "attention_lanes.hpp"

namespace {

using siafu::ATTEND;
using siafu::BACKWARD;
using siafu::Pass;
using siafu::WEIGHTS;

using siafu::MAX_BATCH;
constexpr float MARGIN = 32.0f;
constexpr int MAX_HEADS = W < 8 ? 16 : W;  // of one pass: what one permutation reaches
constexpr int TILES = MAX_HEADS / W;       // vectors after which the order of heads repeats
constexpr int VECTORS = W == 16 ? 8 : 4;   // of columns that are summed in registers at once
constexpr int LINE = 64;

// Of one row: per lane, where lane i of vector j belongs to head (i + j W) mod padded_heads.
struct State {
  Floats own[TILES], reference[TILES], total[TILES], leaned[TILES];
};

template <int HP>
struct Weights {
  alignas(64) float plain[MAX_BATCH * HP + W];   // alpha of edge b and head h at b * HP + h, not yet divided by its sum
  alignas(64) float leaned[MAX_BATCH * HP + W];  // times the slope of LeakyReLU there
};

SIAFU_INLINE Floats leaky(Floats x, float slope) { return x < 0.0f ? x * slope : x; }

// Where the rows and scores of a unit's next edges lie. While an edge is added, the one a batch behind it is told to the
// cache: evenly, for a processor waits for few lines at a time; across rows, so that short ones lose nothing.
struct Stream {
  static constexpr int SIZE = 128, MASK = SIZE - 1;  // two batches
  const char* row[SIZE];
  const char* scores[SIZE];
  int64_t next, last;  // edges

  Stream(const Pass& p, int64_t first, int64_t end, int32_t column) : next(first), last(end) {
    for (int i = 0; i < SIZE; ++i) put(p, i, column);  // a vector may read behind the last edge
  }

  SIAFU_INLINE void put(const Pass& p, int64_t place, int32_t column) {
    const bool inner = column < p.num_inner;
    row[place & MASK] = (inner ? p.rows : p.ghost_rows) + column * p.row_bytes;
    scores[place & MASK] = (inner ? p.scores : p.ghost_scores) + column * p.score_bytes;
  }

  SIAFU_INLINE void fetch(const Pass& p) {
    if (next >= last) return;
    put(p, next, p.indices[next]);
    const char* at = row[next & MASK];
    __builtin_prefetch(at);
    for (int i = 1; i < p.lines; ++i) __builtin_prefetch(at += LINE);
    if (p.score_lines) __builtin_prefetch(scores[next & MASK]);
    if (p.score_lines > 1) __builtin_prefetch(scores[next & MASK] + (p.score_lines - 1) * LINE);
    ++next;
  }
};

template <int HP>
SIAFU_INLINE void copy_heads(float* to, const float* from, int heads) {
  if (heads == HP)
    __builtin_memcpy(to, from, 4 * HP);
  else
    for (int h = 0; h < HP; ++h) to[h] = h < heads ? from[h] : 0.0f;
}

// Scores that lie `offset` floats behind the first of each edge, edge after edge. Put together in registers: to read in one
// vector what was written in several pieces takes the processor a dozen cycles. Lanes behind the last edge hold anything.
template <int HP>
SIAFU_INLINE void collect(float* to, const Stream& edges, int64_t edge, int count, int64_t offset, int heads) {
  const auto at = [&](int64_t b) {
    return reinterpret_cast<const float*>(edges.scores[(edge + b) & Stream::MASK]) + offset;
  };
  if (heads != HP) {
    for (int b = 0; b < count; ++b) copy_heads<HP>(to + b * HP, at(b), heads);
    return;
  }
  for (int64_t i = 0; i < count * HP; i += W) {
    const int64_t first = static_cast<uint64_t>(i) / HP;
    const int skip = HP <= W ? 0 : i % HP;
    Four parts[W / 4];
    for (int q = 0; q < W / 4; ++q) {
      const int64_t b = first + (skip + 4 * q) / HP;
      if (HP == 1) {
        parts[q] = Four{*at(b), *at(b + 1), *at(b + 2), *at(b + 3)};
      } else if (HP == 2) {
        Two pairs;
        double one;
        __builtin_memcpy(&one, at(b), 8), pairs[0] = one;
        __builtin_memcpy(&one, at(b + 1), 8), pairs[1] = one;
        parts[q] = reinterpret_cast<Four>(pairs);
      } else {
        __builtin_memcpy(&parts[q], at(b) + (skip + 4 * q) % HP, 16);
      }
    }
    store(to + i, join(parts));
  }
}

// The order of a vector's heads, from HP scores.
template <int HP>
SIAFU_INLINE void tile(Floats* to, const float* scores) {
  for (int j = 0; j < TILES; ++j) {
    const Ints lane = (iota() + j * W) & (HP - 1);
    if (HP >= W)
      to[j] = load(scores + (j * W) % HP);
    else
      to[j] = pick<HP>(scores, lane);
  }
}

template <int HP>
SIAFU_INLINE void repeat(float* to, const float* weight, int count) {
  for (int b = 0; b < count; ++b)
    for (int h = 0; h < HP; ++h) to[b * HP + h] = weight[b];
}

template <int HP>
SIAFU_INLINE void scale_columns(const Pass& p, float* row, const float* by_head) {
  int j = 0;
  for (; j + W <= p.columns; j += W) store(row + j, load(row + j) * pick<HP>(by_head, load(p.head_of + j)));
  for (; j < p.columns; ++j) row[j] *= by_head[p.head_of[j]];
}

// A score of this batch is far above the reference: the batch's maximum becomes the reference. Rare.
template <int HP>
__attribute__((noinline)) void raise(const Pass& p, State& s, const float* x, int lanes, float* out, float* leaned) {
  alignas(64) float best[TILES * W], factor[TILES * W];
  for (int j = 0; j < TILES; ++j) store(best + j * W, s.reference[j]);
  for (int i = 0; i < lanes; i += W) {
    alignas(64) float scores[W];
    store(scores, leaky(load(x + i) + s.own[i / W % TILES], p.slope));
    for (int lane = 0; lane < W && i + lane < lanes; ++lane) {
      float& b = best[(i + lane) & (HP - 1)];
      b = scores[lane] > b ? scores[lane] : b;
    }
  }
  Floats reference[TILES];
  tile<HP>(reference, best);
  for (int j = 0; j < TILES; ++j) {
    const Floats f = exponential(s.reference[j] - reference[j]);
    s.total[j] *= f, s.leaned[j] *= f, s.reference[j] = reference[j];
    store(factor + j * W, f);
  }
  scale_columns<HP>(p, out, factor);
  if (p.leaned_wanted) scale_columns<HP>(p, leaned, factor);
}

// The columns of vector k of a tile that begins at `first`: the last vector of a row ends with it and may overlap its
// neighbour, which computes the same there.
template <int NV, class E>
SIAFU_INLINE E* vector_of(const Pass& p, int first, int k, E* row) {
  const int end = first + NV * W <= p.columns ? first + NV * W : p.columns;
  return k < NV - 1 ? row + first + k * W : row + end - W;
}

// out += plain weight * row, leaned += leaned weight * row, for NV vectors of columns from `first`. Few vectors wait for
// their own last sum: then every other edge has sums of its own.
template <class E, int NV, int HP, bool LEANED>
void add_tile(const Pass& p, Stream& edges, int64_t edge0, const Weights<HP>& w, int count, int first, float* out, float* leaned) {
  constexpr int STRANDS = NV <= 2 ? 2 : 1;
  Floats a[STRANDS][NV] = {}, b[STRANDS][NV] = {};
  Ints head[NV];
  for (int k = 0; k < NV; ++k) {
    head[k] = load(vector_of<NV>(p, first, k, p.head_of));
    a[0][k] = load(vector_of<NV>(p, first, k, out));
    if (LEANED) b[0][k] = load(vector_of<NV>(p, first, k, leaned));
  }
  const auto add = [&](int edge, int strand) __attribute__((always_inline)) {
    if (first == 0 && (p.mode == WEIGHTS || edge % 2)) edges.fetch(p);
    const E* row = reinterpret_cast<const E*>(edges.row[(edge0 + edge) & Stream::MASK]);
    for (int k = 0; k < NV; ++k) {
      const Floats x = load(vector_of<NV>(p, first, k, row));
      a[strand][k] += pick<HP>(w.plain + edge * HP, head[k]) * x;
      if (LEANED) b[strand][k] += pick<HP>(w.leaned + edge * HP, head[k]) * x;
    }
  };
  int edge = 0;
  for (; edge + STRANDS <= count; edge += STRANDS)
    for (int strand = 0; strand < STRANDS; ++strand) add(edge + strand, strand);
  if (edge < count) add(edge, 0);
  for (int k = 0; k < NV; ++k) {
    for (int strand = 1; strand < STRANDS; ++strand) a[0][k] += a[strand][k], b[0][k] += b[strand][k];
    store(vector_of<NV>(p, first, k, out), a[0][k]);
    if (LEANED) store(vector_of<NV>(p, first, k, leaned), b[0][k]);
  }
}

// Fewer columns than a vector has lanes.
template <class E, int HP, bool LEANED>
void add_narrow(const Pass& p, Stream& edges, int64_t edge0, const Weights<HP>& w, int count, float* out, float* leaned) {
  const int n = p.columns;
  const Ints head = load(p.head_of);
  Floats a = load_part(out, n), b = LEANED ? load_part(leaned, n) : Floats{};
  for (int edge = 0; edge < count; ++edge) {
    edges.fetch(p);
    const Floats x = load_part(reinterpret_cast<const E*>(edges.row[(edge0 + edge) & Stream::MASK]), n);
    a += pick<HP>(w.plain + edge * HP, head) * x;
    if (LEANED) b += pick<HP>(w.leaned + edge * HP, head) * x;
  }
  store_part(out, a, n);
  if (LEANED) store_part(leaned, b, n);
}

template <class E, int HP, bool LEANED>
SIAFU_INLINE void add_rows(const Pass& p, Stream& edges, int64_t edge0, const Weights<HP>& w, int count, float* out, float* leaned) {
  if (p.columns < W) return add_narrow<E, HP, LEANED>(p, edges, edge0, w, count, out, leaned);
  const int vectors = (p.columns + W - 1) / W;
  for (int first = 0, tiles = p.tiles; first < vectors; --tiles) {
    const int size = tiles == 1 ? vectors - first : (vectors - first + tiles - 1) / tiles;
#define SIAFU_TILE(NV) \
  case NV: add_tile<E, NV <= VECTORS ? NV : 1, HP, LEANED>(p, edges, edge0, w, count, first * W, out, leaned); break
    switch (size) {
      SIAFU_TILE(1); SIAFU_TILE(2); SIAFU_TILE(3); SIAFU_TILE(4); SIAFU_TILE(5); SIAFU_TILE(6); SIAFU_TILE(7); SIAFU_TILE(8);
    }
#undef SIAFU_TILE
    first += size;
  }
}

// A batch of edges into a row's sums, from `edge` on of the stream. self: the only edge is the vertex itself, of weight 1.
template <class E, int MODE, int HP>
void add_batch(const Pass& p, State& s, Stream& edges, int64_t edge, int count, bool self, bool first, float* out,
               float* leaned) {
  Weights<HP> w;
  if (MODE == WEIGHTS) {
    const float* from = p.weight + (edge - p.indptr[p.start]) * p.weight_step;
    for (int b = 0; b < count; ++b) copy_heads<HP>(w.plain + b * HP, from + b * p.weight_step, p.heads);
    return add_rows<E, HP, false>(p, edges, edge, w, count, out, leaned);
  }
  alignas(64) float x[MAX_BATCH * HP + W], total[MAX_BATCH * HP + W], delta[MAX_BATCH * HP + W], given[MAX_BATCH * HP + W];
  collect<HP>(x, edges, edge, count, 0, p.heads);
  const int vectors = (count * HP + W - 1) / W;
  const bool weighted = p.weight != nullptr && !self;
  if (weighted) repeat<HP>(given, p.weight + edge, count);
  if (MODE == BACKWARD) {
    collect<HP>(total, edges, edge, count, p.score_step, p.heads);
    collect<HP>(delta, edges, edge, count, 2 * p.score_step, p.heads);
  } else {
    if (first) {
      tile<HP>(s.reference, x);
      for (int j = 0; j < TILES; ++j) s.reference[j] = leaky(s.reference[j] + s.own[j], p.slope);
    }
    Ints over = {};
    for (int i = 0; i < vectors; ++i) {
      const int j = i % TILES;
      over |= (leaky(load(x + i * W) + s.own[j], p.slope) > s.reference[j] + MARGIN) & (iota() + i * W < count * HP);
    }
    if (any(over)) raise<HP>(p, s, x, count * HP, out, leaned);
  }
  for (int i = 0; i < vectors; ++i) {
    const int j = i % TILES;
    for (int b = 0; b < W; b += 2 * HP) edges.fetch(p);
    const Floats sum = load(x + i * W) + s.own[j];
    const Floats score = leaky(sum, p.slope);
    Floats alpha = exponential(score - (MODE == BACKWARD ? load(total + i * W) : s.reference[j]));
    if (weighted) alpha *= load(given + i * W);
    const Ints real = iota() + i * W < count * HP;
    alpha = real ? alpha : Floats{};
    const Floats bent = sum < 0.0f ? alpha * p.slope : alpha;
    s.total[j] += alpha;
    s.leaned[j] += MODE == BACKWARD ? (real ? bent * load(delta + i * W) : Floats{}) : bent;
    store(w.plain + i * W, alpha);
    store(w.leaned + i * W, bent);
  }
  if (MODE == BACKWARD || p.leaned_wanted)
    add_rows<E, HP, true>(p, edges, edge, w, count, out, leaned);
  else
    add_rows<E, HP, false>(p, edges, edge, w, count, out, leaned);
}

// Sums over the lanes of each head, in a fixed order; every lane of a head then holds its sum.
template <int HP>
SIAFU_INLINE void fold(Floats* tiles) {
  for (int step = HP; step < W; step *= 2)
    for (int j = 0; j < TILES; ++j) tiles[j] += permute(tiles[j], iota() ^ step);
  if (HP < W)  // all tiles hold all heads
    for (int j = 1; j < TILES; ++j) tiles[0] += tiles[j];
  for (int half = TILES / 2; HP >= W && half * W >= HP; half /= 2)
    for (int j = 0; j < half; ++j) tiles[j] += tiles[j + half];
  for (int j = 1; j < TILES; ++j) tiles[j] = HP < W ? tiles[0] : tiles[j % (HP >= W ? HP / W : 1)];
}

// Edges first..last of a row into out, leaned and s; s.total and s.leaned hold their sums by head.
template <class E, int MODE, int HP>
void add_edges(const Pass& p, Stream& edges, int64_t row, int64_t first, int64_t last, bool self, State& s, float* out,
               float* leaned) {
  const bool both = MODE == BACKWARD || (MODE == ATTEND && p.leaned_wanted);
  for (int j = 0; j < p.columns; ++j) out[j] = 0.0f;
  for (int j = 0; both && j < p.columns; ++j) leaned[j] = 0.0f;
  s = State{};
  if (MODE != WEIGHTS) {
    alignas(64) float own[MAX_HEADS + W];
    copy_heads<HP>(own, p.own + row * p.total_step, p.heads);
    tile<HP>(s.own, own);
  }
  if (self) {
    Stream own(p, 0, 0, static_cast<int32_t>(row));
    add_batch<E, MODE, HP>(p, s, own, 0, 1, true, true, out, leaned);
  }
  for (int64_t e = first; e < last; e += p.batch) {
    const int count = last - e < p.batch ? static_cast<int>(last - e) : p.batch;
    while (edges.next < e + p.ahead && edges.next < edges.last) edges.fetch(p);  // of a unit's first batch
    add_batch<E, MODE, HP>(p, s, edges, e, count, false, e == first && !self, out, leaned);
  }
  fold<HP>(s.total);
  fold<HP>(s.leaned);
}

template <class A, class B>
SIAFU_INLINE float dot(const A* a, const B* b, int n) {
  Floats sum = {};
  int j = 0;
  for (; j + W <= n; j += W) sum += load(a + j) * load(b + j);
  if (j < n) sum += load_part(a + j, n - j) * load_part(b + j, n - j);
  for (int step = 1; step < W; step *= 2) sum += permute(sum, iota() ^ step);
  return sum[0];
}

// Columns of the pass's head h: [head_begin(h), head_begin(h + 1)).
SIAFU_INLINE int head_begin(const Pass& p, int h) {
  const int begin = h * p.width - p.cut;
  return begin < 0 ? 0 : begin < p.columns ? begin : p.columns;
}

// Divides by the sums, or multiplies with the row's own, and writes what is per head.
template <int MODE, int HP>
SIAFU_INLINE void finish(const Pass& p, int64_t row, const State& s, float* out, float* leaned) {
  const int64_t place = (row - p.start) * p.total_step;
  alignas(64) float first[TILES * W], second[TILES * W], inverse[TILES * W];
  if (MODE == ATTEND) {
    for (int j = 0; j < TILES; ++j) {
      const Ints some = s.total[j] > 0.0f;
      const Floats inv = some ? 1.0f / s.total[j] : Floats{};
      store(inverse + j * W, inv);
      store(first + j * W, some ? s.reference[j] + logarithm(s.total[j]) : splat(__builtin_inff()));
      store(second + j * W, s.leaned[j] * inv);
    }
    scale_columns<HP>(p, out, inverse);
    if (p.leaned_wanted) scale_columns<HP>(p, leaned, inverse);
    for (int h = 0; h < p.heads; ++h) p.total[place + h] = first[h];
    for (int h = 0; p.leaned_wanted && h < p.heads; ++h) p.leaned_total[place + h] = second[h];
  }
  if (MODE == BACKWARD) {
    const char* own = p.own_rows + row * p.own_row_bytes;
    for (int j = 0; j < TILES; ++j) store(second + j * W, s.leaned[j]);
    for (int h = 0; h < p.heads; ++h) {
      const int begin = head_begin(p, h), n = head_begin(p, h + 1) - begin;
      const float product = p.own_bits16 ? dot(reinterpret_cast<const Bfloat16*>(own) + begin, leaned + begin, n)
                                         : dot(reinterpret_cast<const float*>(own) + begin, leaned + begin, n);
      float& to = p.leaned_total[place + h];  // a head that blocks cut: its first one wrote it
      to = h == 0 && p.cut > 0 ? to + product : product - second[h];
    }
  }
}

template <class E, int MODE, int HP>
void whole_rows(const Pass& p, int64_t begin, int64_t end, float* scratch) {
  Stream edges(p, p.indptr[begin], p.indptr[end], 0);
  for (int64_t row = begin; row < end; ++row) {
    State s;
    float* out = p.out + (row - p.start) * p.out_step;
    float* leaned = MODE == ATTEND ? p.leaned + (row - p.start) * p.out_step : scratch;
    add_edges<E, MODE, HP>(p, edges, row, p.indptr[row], p.indptr[row + 1], p.add_self, s, out, leaned);
    finish<MODE, HP>(p, row, s, out, leaned);
  }
}

template <class E, int MODE, int HP>
void one_segment(const Pass& p, int64_t row, int64_t first, int64_t last, float* partial) {
  State s;
  Stream edges(p, first, last, 0);
  float* heads = partial + 2 * p.columns;
  add_edges<E, MODE, HP>(p, edges, row, first, last, p.add_self && first == p.indptr[row], s, partial, partial + p.columns);
  alignas(64) float lanes[3][TILES * W];
  for (int j = 0; j < TILES; ++j) {
    store(lanes[0] + j * W, s.reference[j]);
    store(lanes[1] + j * W, s.total[j]);
    store(lanes[2] + j * W, s.leaned[j]);
  }
  for (int k = 0; k < 3; ++k)
    for (int h = 0; h < p.heads; ++h) heads[k * siafu::MAX_HEADS + h] = lanes[k][h];
}

// The template for the pass's kind of rows, mode and heads.
#define SIAFU_HEADS(f, E, MODE)                                                                                   \
  (p.padded_heads == 1 ? f<E, MODE, 1>                                                                            \
   : p.padded_heads == 2 ? f<E, MODE, 2>                                                                          \
   : p.padded_heads == 4 ? f<E, MODE, 4>                                                                          \
   : p.padded_heads == 8 ? f<E, MODE, 8>                                                                          \
                         : f<E, MODE, MAX_HEADS>)
#define SIAFU_MODE(f, E)                                                                                          \
  (p.mode == ATTEND ? SIAFU_HEADS(f, E, ATTEND) : p.mode == BACKWARD ? SIAFU_HEADS(f, E, BACKWARD) : SIAFU_HEADS(f, E, WEIGHTS))
#define SIAFU_ROWS(f) (p.bits16 ? SIAFU_MODE(f, Bfloat16) : SIAFU_MODE(f, float))

void rows(const Pass& p, int64_t begin, int64_t end, float* scratch) { SIAFU_ROWS(whole_rows)(p, begin, end, scratch); }

void segment(const Pass& p, int64_t row, int64_t first, int64_t last, float* partial) {
  SIAFU_ROWS(one_segment)(p, row, first, last, partial);
}

SIAFU_INLINE float exponential(float x) { return exponential(splat(x))[0]; }

// The parts of a hub, in their order, into the first one, and that into the row.
void merge(const Pass& p, int64_t row, float* partials, int64_t count) {
  const int64_t stride = siafu::partial_floats(p);
  State s = {};
  alignas(64) float lanes[3][MAX_HEADS < W ? W : MAX_HEADS] = {};
  float *heads = partials + 2 * p.columns, *reference = heads, *total = heads + siafu::MAX_HEADS,
        *leaned = heads + 2 * siafu::MAX_HEADS;
  const int columns = p.mode == WEIGHTS || !(p.leaned_wanted || p.mode == BACKWARD) ? p.columns : 2 * p.columns;
  for (int64_t i = 1; i < count; ++i) {
    float ours[MAX_HEADS], theirs[MAX_HEADS];
    const float *part = partials + i * stride, *their = part + 2 * p.columns;
    for (int h = 0; h < p.heads; ++h) {
      const float best = p.mode == ATTEND && their[h] > reference[h] ? their[h] : reference[h];
      ours[h] = p.mode == ATTEND ? exponential(reference[h] - best) : 1.0f;
      theirs[h] = p.mode == ATTEND ? exponential(their[h] - best) : 1.0f;
      reference[h] = best;
      total[h] = ours[h] * total[h] + theirs[h] * their[siafu::MAX_HEADS + h];
      leaned[h] = ours[h] * leaned[h] + theirs[h] * their[2 * siafu::MAX_HEADS + h];
    }
    for (int j = 0; j < columns; ++j) {
      const int h = p.head_of[j < p.columns ? j : j - p.columns];
      partials[j] = ours[h] * partials[j] + theirs[h] * part[j];
    }
  }
  for (int k = 0; k < 3; ++k)
    for (int h = 0; h < p.heads; ++h) lanes[k][h] = heads[k * siafu::MAX_HEADS + h];
  for (int j = 0; j < TILES; ++j) {
    s.reference[j] = load(lanes[0] + j * W), s.total[j] = load(lanes[1] + j * W), s.leaned[j] = load(lanes[2] + j * W);
  }
  float* out = p.out + (row - p.start) * p.out_step;
  for (int j = 0; j < p.columns; ++j) out[j] = partials[j];
  float* out_leaned = partials + p.columns;
  if (p.mode == ATTEND && p.leaned_wanted) {
    out_leaned = p.leaned + (row - p.start) * p.out_step;
    for (int j = 0; j < p.columns; ++j) out_leaned[j] = partials[p.columns + j];
  }
  if (p.mode == ATTEND) finish<ATTEND, MAX_HEADS>(p, row, s, out, out_leaned);
  if (p.mode == BACKWARD) finish<BACKWARD, MAX_HEADS>(p, row, s, out, out_leaned);
}

// Edges begin..end of the range: products of their target's row (own_rows) and their source's, by head.
template <class E, class O>
void dots(const Pass& p, int64_t row, int64_t first, int64_t last) {
  const O* own = reinterpret_cast<const O*>(p.own_rows + row * p.own_row_bytes);
  Stream edges(p, first, last, 0);
  for (int64_t e = first; e < last; ++e) {
    while (edges.next <= e + p.ahead && edges.next < last) edges.fetch(p);
    const E* source = reinterpret_cast<const E*>(edges.row[e & Stream::MASK]);
    float* out = p.out + (e - p.indptr[p.start]) * p.out_step;
    for (int h = 0; h < p.heads; ++h) out[h] = dot(own + h * p.width, source + h * p.width, p.width);
  }
}

void edge_dot(const Pass& p, int64_t row, int64_t first, int64_t last) {
  if (p.bits16)
    dots<Bfloat16, float>(p, row, first, last);
  else
    dots<float, float>(p, row, first, last);
}

void exp_all(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = exponential(x[i]);
}

void log_all(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = logarithm(splat(x[i]))[0];
}

}  // namespace

namespace siafu {
const AttentionTable SIAFU_PASTE(attention_rows_, SIAFU_ISA) = {W, VECTORS, ::MAX_HEADS, rows, segment, merge, edge_dot, exp_all, log_all};
}  // namespace siafu

#endif
