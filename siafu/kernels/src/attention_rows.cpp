// Rows of attention for one instruction set: every edge is read once, its score is made again where it is needed, and
// no tensor over the edges exists.
//
// One vector of exponentials makes the weights of one edge, or of many if there are one or two heads; then their rows
// are added to sums that stay in registers until the row ends.
//
// The softmax needs no pass of its own: weights are e^(score - reference), where the reference of a row and head is
// its first edge's score, until a score comes that is more than MARGIN above it. Then sums are scaled to the greater
// reference. It is never above the maximum, so that nothing that counts is lost to underflow; and e^MARGIN leaves room
// for sums over 2^31 edges.
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

constexpr float MARGIN = 32.0f;
constexpr int MAX_HEADS = W;             // of one pass: what one permutation reaches
constexpr int VECTORS = W == 8 ? 4 : 8;  // of columns: with AVX2, sums of more do not fit its 16 registers
constexpr int LINE = 64;

// Scores are in vectors of one edge, or of several where its heads would fill less than a quarter of a vector: lane i
// belongs to edge i / HP and head i mod HP, where HP is the number of heads, padded to a power of two.
template <int HP>
constexpr int SCORES = HP < 4 ? W : HP;
template <int HP>
constexpr int EDGES = SCORES<HP> / HP;
template <int HP>
using Scores = typename Lanes<SCORES<HP>>::F;
template <int HP>
using Marks = typename Lanes<SCORES<HP>>::I;

// Of one row, by head.
struct State {
  alignas(64) float reference[W], total[W], leaned[W];
};

SIAFU_INLINE const char* row_of(const Pass& p, int64_t column) {
  return (column < p.num_inner ? p.rows : p.ghost_rows) + column * p.row_bytes;
}

SIAFU_INLINE const char* scores_of(const Pass& p, int64_t column) {
  return (column < p.num_inner ? p.scores : p.ghost_scores) + column * p.score_bytes;
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

  // LINES: of a row's columns. Scores that lie beside them are lines of their own.
  template <int MODE, int LINES>
  SIAFU_INLINE void fetch(const Pass& p) {
    if (next >= last) return;
    const int64_t column = p.indices[next];
    const char *at = row_of(p, column), *marks = scores_of(p, column);
    row[next & MASK] = at, scores[next & MASK] = marks;
    ++next;
    each<LINES>([&](auto i) SIAFU_LAMBDA { __builtin_prefetch(at + i.value * LINE); });
    if (p.loose) __builtin_prefetch(at + p.columns * p.value_bytes - 1);
    if (MODE != WEIGHTS) __builtin_prefetch(marks);
    if (MODE == BACKWARD) __builtin_prefetch(marks + 8 * p.score_step + 4 * p.heads - 1);
  }

  template <int MODE, int LINES>
  SIAFU_INLINE void fetch_until(const Pass& p, int64_t edge) {
    while (next < edge && next < last) fetch<MODE, LINES>(p);
  }
};

template <int HP>
SIAFU_INLINE Scores<HP> load_heads(const float* from, int heads) {
  Scores<HP> x = {};
  if (heads == HP)
    __builtin_memcpy(&x, from, 4 * HP);
  else
    for (int h = 0; h < heads; ++h) x[h] = from[h];
  return x;
}

// A vector of the scores that lie `offset` floats behind the first of each edge. Those of several edges are put
// together in registers: to read in one vector what was written in several pieces takes a processor a dozen cycles.
// Lanes behind the last edge hold anything.
template <int HP>
SIAFU_INLINE Scores<HP> collect(const Stream& edges, int64_t edge, int64_t offset, int heads) {
  const auto at = [&](int b) SIAFU_LAMBDA {
    return reinterpret_cast<const float*>(edges.scores[(edge + b) & Stream::MASK]) + offset;
  };
  if constexpr (EDGES<HP> == 1) {
    return load_heads<HP>(at(0), heads);
  } else {
    Four parts[W / 4];
    for (int q = 0; q < W / 4; ++q) {
      const int b = 4 * q / HP;
      if (HP == 1) {
        parts[q] = Four{*at(b), *at(b + 1), *at(b + 2), *at(b + 3)};
      } else {
        Two pairs;
        double one;
        __builtin_memcpy(&one, at(b), 8), pairs[0] = one;
        __builtin_memcpy(&one, at(b + 1), 8), pairs[1] = one;
        parts[q] = reinterpret_cast<Four>(pairs);
      }
    }
    return join(parts);
  }
}

// The scores of one row, repeated for every edge of a vector.
template <int HP>
SIAFU_INLINE Scores<HP> repeat(const float* scores, int heads) {
  if constexpr (EDGES<HP> == 1) {
    return load_heads<HP>(scores, heads);
  } else {
    alignas(64) float x[W] = {scores[0], heads > 1 ? scores[1] : 0.0f};
    return pick<HP>(x, iota() & (HP - 1));
  }
}

// The greatest of each head's lanes, in all of them; and their sum.
template <int HP>
SIAFU_INLINE Scores<HP> greatest(Scores<HP> x) {
  if constexpr (EDGES<HP> > 1)
    for (int step = HP; step < W; step *= 2) {
      const Floats y = permute(x, iota() ^ step);
      x = x < y ? y : x;
    }
  return x;
}

template <int HP>
SIAFU_INLINE Scores<HP> sum(Scores<HP> x) {
  if constexpr (EDGES<HP> > 1)
    for (int step = HP; step < W; step *= 2) x += permute(x, iota() ^ step);
  return x;
}

// Sums of NV vectors of columns (0: of fewer columns than a vector has), plain and times the slope, in registers. Few
// vectors wait for their own last sum: then every other edge has sums of its own.
template <class E, int HP, int NV, bool LEANED>
struct Sums {
  static constexpr int N = NV ? NV : 1, STRANDS = N <= 2 && EDGES<HP> > 1 ? 2 : 1;
  Floats plain[STRANDS][N] = {}, leaned[STRANDS][N] = {};
  Ints head[N];
  int columns;

  SIAFU_INLINE explicit Sums(const Pass& p) : columns(p.columns) {
    each<N>([&](auto k) SIAFU_LAMBDA { head[k.value] = load(at<k.value>(p.head_of)); });
  }

  // Vector k of a row. Those of the second half may begin at its last columns and overlap others: they agree.
  template <int K, class T>
  SIAFU_INLINE T* at(T* row) const {
    if constexpr (K == 0 || K < N / 2) return row + K * W;
    return row + (K * W + W <= columns ? K * W : columns - W);
  }

  // weight, bent: of a vector of columns, by its heads.
  template <int STRAND, class F, class G>
  SIAFU_INLINE void add(const E* row, const F& weight, const G& bent) {
    each<N>([&](auto k) SIAFU_LAMBDA {
      constexpr int K = k.value;
      const Floats x = NV ? load(at<K>(row)) : load_part(row, columns);
      plain[STRAND][K] += weight(head[K]) * x;
      if constexpr (LEANED) leaned[STRAND][K] += bent(head[K]) * x;
    });
  }

  template <class F>
  SIAFU_INLINE void scale(const F& factor) {
    each<STRANDS * N>([&](auto i) SIAFU_LAMBDA {
      constexpr int STRAND = i.value / N, K = i.value % N;
      const Floats by = factor(head[K]);
      plain[STRAND][K] *= by, leaned[STRAND][K] *= by;
    });
  }

  SIAFU_INLINE void put(float* out, float* out_leaned) const {
    each<N>([&](auto k) SIAFU_LAMBDA {
      constexpr int K = k.value;
      Floats a = plain[0][K], b = leaned[0][K];
      if constexpr (STRANDS == 2) a += plain[1][K], b += leaned[1][K];
      if (NV) {
        store(at<K>(out), a);
        if (LEANED) store(at<K>(out_leaned), b);
      } else {
        store_part(out, a, columns);
        if (LEANED) store_part(out_leaned, b, columns);
      }
    });
  }
};

// The weights of a vector of edges: alpha (not divided by its sum), and times the slope of LeakyReLU.
template <int HP>
struct Weigher {
  using F = Scores<HP>;
  using I = Marks<HP>;
  F own = {}, reference = {}, total = {}, bent_total = {}, plain, bent;
  alignas(64) float all_plain[W], all_bent[W];  // of several edges

  // Of edge b, for columns of those heads.
  SIAFU_INLINE Floats plain_of(int b, Ints head) const {
    if constexpr (EDGES<HP> == 1) return spread(plain, head);
    else return pick<HP>(all_plain + b * HP, head);
  }
  SIAFU_INLINE Floats bent_of(int b, Ints head) const {
    if constexpr (EDGES<HP> == 1) return spread(bent, head);
    else return pick<HP>(all_bent + b * HP, head);
  }

  // A row's first edge, of that score, is what others are measured with.
  SIAFU_INLINE void begin(const Pass& p, F score) {
    const F x = score + own;
    reference = x < 0.0f ? x * p.slope : x;
  }

  // score, log_total, delta: of the edges' other ends; given(x): x times the edges' weights; real: lanes of an edge.
  template <int MODE, class G, class S>
  SIAFU_INLINE void weigh(const Pass& p, F score, F log_total, F delta, const G& given, I real, S& sums) {
    const F x = score + own, e = x < 0.0f ? x * p.slope : x;
    if (MODE == ATTEND) {
      I over = e > reference + MARGIN;
      if (EDGES<HP> > 1) over &= real;
      if (__builtin_expect(any(over), 0)) {
        const F best = greatest<HP>(EDGES<HP> > 1 ? (real ? e : reference) : e);
        const F higher = best > reference ? best : reference, factor = exponential(reference - higher);
        total *= factor, bent_total *= factor, reference = higher;
        alignas(64) float factors[W] = {};
        __builtin_memcpy(factors, &factor, sizeof factor);
        sums.scale([&](Ints head) SIAFU_LAMBDA { return pick<HP>(factors, head); });
      }
    }
    plain = given(exponential(e - (MODE == ATTEND ? reference : log_total)));
    if (EDGES<HP> > 1) plain = real ? plain : F{}, delta = real ? delta : F{};
    bent = x < 0.0f ? plain * p.slope : plain;
    total += plain;
    bent_total += MODE == ATTEND ? bent : bent * delta;
    if constexpr (EDGES<HP> > 1) store(all_plain, plain), store(all_bent, bent);
  }

  SIAFU_INLINE State state() const {
    State s = {};
    const F parts[3] = {reference, sum<HP>(total), sum<HP>(bent_total)};
    __builtin_memcpy(s.reference, &parts[0], sizeof(F));
    __builtin_memcpy(s.total, &parts[1], sizeof(F));
    __builtin_memcpy(s.leaned, &parts[2], sizeof(F));
    return s;
  }
};

// The lanes' edges' weights in the graph.
template <int HP>
SIAFU_INLINE Scores<HP> edge_weights(const Pass& p, int64_t edge, int count) {
  if constexpr (EDGES<HP> == 1) return Scores<HP>{} + p.weight[edge];
  else return permute(count < W ? load_part(p.weight + edge, count) : load(p.weight + edge), iota() / HP);
}

// Edges first..last of a row into out and leaned.
template <class E, int MODE, int HP, int NV>
__attribute__((noinline)) State add_edges(const Pass& p, Stream& edges, int64_t row, int64_t first, int64_t last,
                                          bool self, float* out, float* leaned) {
  constexpr int MOST = EDGES<HP>, BYTES = (NV ? NV : 1) * W * static_cast<int>(sizeof(E));
  constexpr int LINES = (BYTES + LINE - 1) / LINE;
  const Scores<HP> none = {};
  const int64_t second = MODE == BACKWARD ? p.score_step : 0;
  Sums<E, HP, NV, MODE != WEIGHTS> sums(p);
  Weigher<HP> w;
  Marks<HP> edge_of = {};
  if constexpr (MOST > 1) edge_of = iota() / HP;
  const auto add = [&](const char* source, int b, auto strand) SIAFU_LAMBDA {
    sums.template add<strand.value>(
        reinterpret_cast<const E*>(source), [&](Ints head) SIAFU_LAMBDA { return w.plain_of(b, head); },
        [&](Ints head) SIAFU_LAMBDA { return w.bent_of(b, head); });
  };
  if (MODE != WEIGHTS) w.own = repeat<HP>(p.own + row * p.total_step, p.heads);
  if (MODE != WEIGHTS && self) {
    const float* scores = reinterpret_cast<const float*>(scores_of(p, row));
    const Scores<HP> score = repeat<HP>(scores, p.heads);
    w.begin(p, score);
    w.template weigh<MODE>(p, score, repeat<HP>(scores + second, p.heads), repeat<HP>(scores + 2 * second, p.heads),
                           [](Scores<HP> x) SIAFU_LAMBDA { return x; }, edge_of < 1, sums);
    add(row_of(p, row), 0, Constant<0>{});
  }
  edges.template fetch_until<MODE, LINES>(p, first + p.ahead);
  if (MODE == ATTEND && !self && first < last)
    w.begin(p, repeat<HP>(reinterpret_cast<const float*>(edges.scores[first & Stream::MASK]), p.heads));
  for (int64_t e = first; e < last; e += MOST) {
    const int count = MOST == 1 ? 1 : last - e < MOST ? static_cast<int>(last - e) : MOST;
    if (MODE == WEIGHTS) {
      const float* given = p.weight + (e - p.indptr[p.start]) * p.weight_step;
      if constexpr (MOST == 1) w.plain = load_heads<HP>(given, p.heads);
      else
        for (int b = 0; b < count; ++b)
          for (int h = 0; h < HP; ++h) w.all_plain[b * HP + h] = h < p.heads ? given[b * p.weight_step + h] : 0.0f;
    } else {
      const Scores<HP> log_total = MODE == BACKWARD ? collect<HP>(edges, e, p.score_step, p.heads) : none;
      const Scores<HP> delta = MODE == BACKWARD ? collect<HP>(edges, e, 2 * p.score_step, p.heads) : none;
      w.template weigh<MODE>(p, collect<HP>(edges, e, 0, p.heads), log_total, delta,
                             [&](Scores<HP> x)
                                 SIAFU_LAMBDA { return p.weight ? x * edge_weights<HP>(p, e, count) : x; },
                             edge_of < count, sums);
    }
    int b = 0;
    for (; b + sums.STRANDS <= count; b += sums.STRANDS)
      each<sums.STRANDS>([&](auto strand) SIAFU_LAMBDA {
        edges.template fetch<MODE, LINES>(p);
        add(edges.row[(e + b + strand.value) & Stream::MASK], b + strand.value, strand);
      });
    if (b < count) edges.template fetch<MODE, LINES>(p), add(edges.row[(e + b) & Stream::MASK], b, Constant<0>{});
  }
  sums.put(out, leaned);
  return w.state();
}

SIAFU_INLINE void scale_columns(const Pass& p, float* row, const float* by_head) {
  int j = 0;
  for (; j + W <= p.columns; j += W) store(row + j, load(row + j) * pick<W>(by_head, load(p.head_of + j)));
  for (; j < p.columns; ++j) row[j] *= by_head[p.head_of[j]];
}

template <class A, class B>
SIAFU_INLINE float dot(const A* a, const B* b, int n) {
  Floats products = {};
  int j = 0;
  for (; j + W <= n; j += W) products += load(a + j) * load(b + j);
  if (j < n) products += load_part(a + j, n - j) * load_part(b + j, n - j);
  return sum<1>(products)[0];
}

// The pass's columns of its head h begin there.
SIAFU_INLINE int head_begin(const Pass& p, int h) {
  const int begin = h * p.width - p.cut;
  return begin < 0 ? 0 : begin < p.columns ? begin : p.columns;
}

// Divides by the sums, or multiplies with the row's own, and writes what is per head.
template <int MODE>
SIAFU_INLINE void finish(const Pass& p, int64_t row, const State& s, float* out, float* leaned) {
  const int64_t place = (row - p.start) * p.total_step;
  if (MODE == ATTEND) {
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
  if (MODE == BACKWARD) {
    const char* own = p.own_rows + row * p.own_row_bytes;
    for (int h = 0; h < p.heads; ++h) {
      const int begin = head_begin(p, h), n = head_begin(p, h + 1) - begin;
      const float product = p.own_bits16 ? dot(reinterpret_cast<const Bfloat16*>(own) + begin, leaned + begin, n)
                                         : dot(reinterpret_cast<const float*>(own) + begin, leaned + begin, n);
      float& to = p.leaned_total[place + h];  // of a head that passes cut, the first one wrote it
      to = h == 0 && p.cut > 0 ? to + product : product - s.leaned[h];
    }
  }
}

template <class E, int MODE, int HP, int NV>
void whole_rows(const Pass& p, int64_t begin, int64_t end, float* scratch) {
  Stream edges(p, p.indptr[begin], p.indptr[end]);
  for (int64_t row = begin; row < end; ++row) {
    float* out = p.out + (row - p.start) * p.out_step;
    float* leaned = MODE == ATTEND && p.leaned ? p.leaned + (row - p.start) * p.out_step : scratch;
    if (p.add_self) __builtin_prefetch(row_of(p, row + 1 < end ? row + 1 : row));
    const int64_t first = p.indptr[row], last = p.indptr[row + 1];
    const State s = add_edges<E, MODE, HP, NV>(p, edges, row, first, last, p.add_self, out, leaned);
    finish<MODE>(p, row, s, out, leaned);
  }
}

// The part first..last of a hub's edges; the first one has the vertex itself.
template <class E, int MODE, int HP, int NV>
void one_segment(const Pass& p, int64_t row, int64_t first, int64_t last, float* partial) {
  Stream edges(p, first, last);
  const bool self = p.add_self && first == p.indptr[row];
  const State s = add_edges<E, MODE, HP, NV>(p, edges, row, first, last, self, partial, partial + p.columns);
  float* heads = partial + 2 * p.columns;
  for (int h = 0; h < p.heads; ++h) {
    heads[h] = s.reference[h];
    heads[siafu::MAX_HEADS + h] = s.total[h];
    heads[2 * siafu::MAX_HEADS + h] = s.leaned[h];
  }
}

// The instance for the pass's rows, mode, heads and columns.
#define SIAFU_COLUMNS(f, E, MODE, HP)                                                                              \
  (p.columns < W        ? f<E, MODE, HP, 0>                                                                        \
   : p.columns <= W     ? f<E, MODE, HP, 1>                                                                        \
   : p.columns <= 2 * W ? f<E, MODE, HP, 2>                                                                        \
   : p.columns <= 4 * W ? f<E, MODE, HP, 4>                                                                        \
                        : f<E, MODE, HP, VECTORS>)
#define SIAFU_HEADS(f, E, MODE)                                                                                    \
  (p.padded_heads == 1   ? SIAFU_COLUMNS(f, E, MODE, 1)                                                            \
   : p.padded_heads == 2 ? SIAFU_COLUMNS(f, E, MODE, 2)                                                            \
   : p.padded_heads == 4 ? SIAFU_COLUMNS(f, E, MODE, 4)                                                            \
   : p.padded_heads == 8 ? SIAFU_COLUMNS(f, E, MODE, (MAX_HEADS < 8 ? 1 : 8))                                      \
                         : SIAFU_COLUMNS(f, E, MODE, (MAX_HEADS < 16 ? 1 : 16)))
#define SIAFU_MODE(f, E)                                                                                           \
  (p.mode == ATTEND     ? SIAFU_HEADS(f, E, ATTEND)                                                                \
   : p.mode == BACKWARD ? SIAFU_HEADS(f, E, BACKWARD)                                                              \
                        : SIAFU_HEADS(f, E, WEIGHTS))
#define SIAFU_ROWS(f) (p.bits16 ? SIAFU_MODE(f, Bfloat16) : SIAFU_MODE(f, float))

void rows(const Pass& p, int64_t begin, int64_t end, float* scratch) { SIAFU_ROWS(whole_rows)(p, begin, end, scratch); }

void segment(const Pass& p, int64_t row, int64_t first, int64_t last, float* partial) {
  SIAFU_ROWS(one_segment)(p, row, first, last, partial);
}

inline float exponential_of(float x) { return exponential(splat(x))[0]; }

// part into whole: both are partials of one row, part of later edges.
void merge_two(const Pass& p, float* whole, const float* part) {
  float ours[MAX_HEADS], theirs[MAX_HEADS];
  float *heads = whole + 2 * p.columns, *total = heads + siafu::MAX_HEADS, *leaned = total + siafu::MAX_HEADS;
  const float* other = part + 2 * p.columns;
  for (int h = 0; h < p.heads; ++h) {
    const float best = p.mode == ATTEND && other[h] > heads[h] ? other[h] : heads[h];
    ours[h] = p.mode == ATTEND ? exponential_of(heads[h] - best) : 1.0f;
    theirs[h] = p.mode == ATTEND ? exponential_of(other[h] - best) : 1.0f;
    heads[h] = best;
    total[h] = ours[h] * total[h] + theirs[h] * other[siafu::MAX_HEADS + h];
    leaned[h] = ours[h] * leaned[h] + theirs[h] * other[2 * siafu::MAX_HEADS + h];
  }
  for (int k = 0; k < (p.mode == WEIGHTS ? 1 : 2); ++k)
    for (int j = 0; j < p.columns; ++j) {
      const int h = p.head_of[j];
      float& to = whole[k * p.columns + j];
      to = ours[h] * to + theirs[h] * part[k * p.columns + j];
    }
}

// The parts of a hub, in their order, into the row.
void merge(const Pass& p, int64_t row, float* partials, int64_t count) {
  for (int64_t i = 1; i < count; ++i) merge_two(p, partials, partials + i * siafu::partial_floats(p));
  float *out = p.out + (row - p.start) * p.out_step, *leaned = partials + p.columns;
  for (int j = 0; j < p.columns; ++j) out[j] = partials[j];
  if (p.mode == ATTEND && p.leaned) {
    leaned = p.leaned + (row - p.start) * p.out_step;
    for (int j = 0; j < p.columns; ++j) leaned[j] = partials[p.columns + j];
  }
  const float* heads = partials + 2 * p.columns;
  State s = {};
  for (int h = 0; h < p.heads; ++h) {
    s.reference[h] = heads[h];
    s.total[h] = heads[siafu::MAX_HEADS + h];
    s.leaned[h] = heads[2 * siafu::MAX_HEADS + h];
  }
  if (p.mode == ATTEND) finish<ATTEND>(p, row, s, out, leaned);
  if (p.mode == BACKWARD) finish<BACKWARD>(p, row, s, out, leaned);
}

// Of edges first..last of a row: products of its own row and their sources', by head.
template <class E>
void dots(const Pass& p, int64_t row, int64_t first, int64_t last) {
  const float* own = reinterpret_cast<const float*>(p.own_rows + row * p.own_row_bytes);
  Stream edges(p, first, last);
  for (int64_t e = first; e < last; ++e) {
    edges.fetch_until<WEIGHTS, 4>(p, e + 1 + p.ahead);
    const E* source = reinterpret_cast<const E*>(edges.row[e & Stream::MASK]);
    float* out = p.out + (e - p.indptr[p.start]) * p.out_step;
    for (int h = 0; h < p.heads; ++h) out[h] = dot(own + h * p.width, source + h * p.width, p.width);
  }
}

void edge_dot(const Pass& p, int64_t row, int64_t first, int64_t last) {
  p.bits16 ? dots<Bfloat16>(p, row, first, last) : dots<float>(p, row, first, last);
}

void exp_all(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = exponential_of(x[i]);
}

void log_all(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = logarithm(splat(x[i]))[0];
}

}  // namespace

namespace siafu {
const AttentionTable SIAFU_PASTE(attention_rows_, SIAFU_ISA) = {
    VECTORS * W, ::MAX_HEADS, rows, segment, merge, edge_dot, exp_all, log_all};
}  // namespace siafu

#endif
