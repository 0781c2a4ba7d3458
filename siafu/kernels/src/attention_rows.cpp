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

constexpr float MARGIN = 32.0f;
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

// Scores are in vectors of one edge, or of several where its heads would fill less than half of one: lane i belongs to edge
// i / HP and head i mod HP, where HP is the number of heads, padded to a power of two.
template <int HP>
constexpr int SCORES = HP < 4 ? 8 : HP;
constexpr int MOST_SCORES = W < 8 ? 8 : W;
template <int HP>
constexpr int EDGES = SCORES<HP> / HP;
template <int HP>
using Scores = typename Lanes<SCORES<HP>>::F;
template <int HP>
using Marks = typename Lanes<SCORES<HP>>::I;

// Of one row, by head.
struct State {
  alignas(64) float reference[MOST_SCORES], total[MOST_SCORES], leaned[MOST_SCORES];
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

SIAFU_INLINE const int64_t* id_of(const Pass& p, int64_t column) {
  return (column < p.num_inner ? p.ids : p.ghost_ids) + column;
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
    each<LINES>([&](auto i) SIAFU_LAMBDA { __builtin_prefetch(at + i.value * LINE); });
    if (p.loose) __builtin_prefetch(at + p.columns * p.value_bytes - 1);
    if (drops) __builtin_prefetch(id_of(p, column));
    __builtin_prefetch(marks);
    if (MODE == BACKWARD) __builtin_prefetch(marks + 8 * p.score_step + 4 * p.heads - 1);
  }

  template <int MODE, int LINES>
  SIAFU_INLINE void fetch_until(const Pass& p, int64_t edge, bool drops) {
    while (next < edge && next < last) fetch<MODE, LINES>(p, drops);
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
    Four parts[2];
    for (int q = 0; q < 2; ++q) {
      const int b = 4 * q / HP;
      if (HP == 1) {
        parts[q] = Four{*at(b), *at(b + 1), *at(b + 2), *at(b + 3)};
      } else if (heads == 1) {  // behind it there may be nothing
        parts[q] = Four{*at(b), 0.0f, *at(b + 1), 0.0f};
      } else {
        Two pairs;
        double one;
        __builtin_memcpy(&one, at(b), 8), pairs[0] = one;
        __builtin_memcpy(&one, at(b + 1), 8), pairs[1] = one;
        parts[q] = reinterpret_cast<Four>(pairs);
      }
    }
    return join(parts[0], parts[1]);
  }
}

// The scores of one row, repeated for every edge of a vector.
template <int HP>
SIAFU_INLINE Scores<HP> repeat(const float* scores, int heads) {
  if constexpr (EDGES<HP> == 1) {
    return load_heads<HP>(scores, heads);
  } else {
    const float one = scores[0], two = HP == 1 ? one : heads > 1 ? scores[1] : 0.0f;
    return Scores<HP>{one, two, one, two, one, two, one, two};
  }
}

// The greatest of each head's lanes, in all of them; and their sum.
template <int HP>
SIAFU_INLINE Scores<HP> greatest(Scores<HP> x) {
  if constexpr (EDGES<HP> > 1)
    for (int step = HP; step < SCORES<HP>; step *= 2) {
      const Scores<HP> y = permute(x, iota() ^ step);
      x = x < y ? y : x;
    }
  return x;
}

template <int HP>
SIAFU_INLINE Scores<HP> sum(Scores<HP> x) {
  if constexpr (EDGES<HP> > 1)
    for (int step = HP; step < SCORES<HP>; step *= 2) x += permute(x, iota() ^ step);
  return x;
}

// Sums of NV vectors of columns (0: of fewer columns than a vector has), plain and times the slope, in registers. Those of a
// call with FEW columns would wait for their own last sum: there every other edge has sums of its own.
template <class E, int NV, bool FEW>
struct Sums {
  static constexpr int N = NV ? NV : 1, STRANDS = FEW ? 2 : 1;
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
      plain[STRAND][K] = fused(weight(head[K]), x, plain[STRAND][K]);
      leaned[STRAND][K] = fused(bent(head[K]), x, leaned[STRAND][K]);
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
        store(at<K>(out_leaned), b);
      } else {
        store_part(out, a, columns);
        store_part(out_leaned, b, columns);
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
  alignas(64) float all_plain[MOST_SCORES], all_bent[MOST_SCORES];  // of several edges
  // Of several edges of a call with many heads: their totals are added up edge by edge, as where a vector has one edge.
  const bool ordered;
  float ordered_total[HP] = {}, ordered_bent[HP] = {};

  SIAFU_INLINE explicit Weigher(const Pass& p) : ordered(EDGES<HP> > 1 && p.many_heads) {}

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

  // score, log_total: of the edges' other ends; given(x): x times the edges' weights; edge_of: the lanes' edges, of which
  // there are ``number``, or, if it is lowered here, as many as may be weighed now. FIRST: of the edge that the row began with.
  template <int MODE, bool FIRST, class G, class S>
  SIAFU_INLINE void weigh(const Pass& p, F score, F log_total, const G& given, I edge_of, int& number, S& sums) {
    const F x = score + own, e = x < 0.0f ? x * p.slope : x;
    I real = edge_of < number;
    if constexpr (MODE == ATTEND && !FIRST) {
      I over = e > reference + MARGIN;
      if (EDGES<HP> > 1) over &= real;
      if (__builtin_expect(any(over), 0)) {  // of that head alone: which others are in the pass must not matter
        if (ordered) {  // an edge raises the reference when its turn comes, which is alone
          int before = 0;
          while (!any(over & (edge_of == before))) ++before;
          number = before ? before : 1;
          over &= edge_of == 0;
          real = edge_of < number;
        }
        const F higher = greatest<HP>(over ? e : reference), factor = exponential(reference - higher);
        total *= factor, bent_total *= factor, reference = higher;
        alignas(64) float factors[MOST_SCORES] = {};
        __builtin_memcpy(factors, &factor, sizeof factor);
        for (int h = 0; h < HP; ++h) ordered_total[h] *= factors[h], ordered_bent[h] *= factors[h];
        sums.scale([&](Ints head) SIAFU_LAMBDA { return pick<HP>(factors, head); });
      }
    }
    plain = given(exponential(e - (MODE == ATTEND ? reference : log_total)));
    if (EDGES<HP> > 1) plain = real ? plain : F{};
    bent = x < 0.0f ? plain * p.slope : plain;
  }

  // Coefficients that are there already: negative where LeakyReLU was.
  SIAFU_INLINE void take(const Pass& p, F alpha) {
    plain = alpha < 0.0f ? -alpha : alpha;
    bent = alpha < 0.0f ? plain * p.slope : plain;
  }

  // What totals have is not dropped: keep(x): x where it is kept, scaled.
  template <int MODE, class K>
  SIAFU_INLINE void count(F delta, I edge_of, int number, bool drops, const K& keep) {
    if (EDGES<HP> > 1) delta = edge_of < number ? delta : F{};
    if (ordered) {
      count_in_order<MODE>(delta, number);
    } else {
      total += plain;
      bent_total = MODE == ATTEND ? bent_total + bent : fused(bent, delta, bent_total);
    }
    if (drops) keep(plain, bent);
    if constexpr (EDGES<HP> > 1) __builtin_memcpy(all_plain, &plain, sizeof plain), __builtin_memcpy(all_bent, &bent, sizeof bent);
  }

  template <int MODE>
  SIAFU_INLINE void count_in_order(F delta, int number) {
    alignas(64) float parts[3][SCORES<HP>];
    __builtin_memcpy(parts[0], &plain, sizeof(F));
    __builtin_memcpy(parts[1], &bent, sizeof(F));
    __builtin_memcpy(parts[2], &delta, sizeof(F));
    for (int i = 0; i < number * HP; i += HP)
      for (int h = 0; h < HP; ++h) {
        float& leaned = ordered_bent[h];
        ordered_total[h] += parts[0][i + h];
        leaned = MODE == ATTEND ? leaned + parts[1][i + h] : fused(parts[1][i + h], parts[2][i + h], leaned);
      }
  }

  SIAFU_INLINE State state() const {
    State s = {};
    const F parts[3] = {reference, sum<HP>(total), sum<HP>(bent_total)};
    __builtin_memcpy(s.reference, &parts[0], sizeof(F));
    __builtin_memcpy(s.total, ordered ? ordered_total : reinterpret_cast<const float*>(&parts[1]), 4 * HP);
    __builtin_memcpy(s.leaned, ordered ? ordered_bent : reinterpret_cast<const float*>(&parts[2]), 4 * HP);
    return s;
  }
};

// The lanes' edges' weights in the graph.
template <int HP>
SIAFU_INLINE Scores<HP> edge_weights(const Pass& p, int64_t edge, int count) {
  if constexpr (EDGES<HP> == 1) return p.weight[edge] - Scores<HP>{};
  else return permute(load_eight(p.weight + edge, count), iota() / HP);
}

// Lanes' coefficients that were given: of `count` edges from place `at` of the range's on; 0 behind them.
template <int HP>
SIAFU_INLINE Scores<HP> alphas(const Pass& p, int64_t at, int count) {
  const float* from = p.alpha + at * p.alpha_step;
  if constexpr (EDGES<HP> == 1) {
    return load_heads<HP>(from, p.heads);
  } else {
    if (p.alpha_step == HP && p.heads == HP) return load_eight(from, count * HP);
    Scores<HP> x = {};
    for (int b = 0; b < count; ++b)
      for (int h = 0; h < p.heads; ++h) x[b * HP + h] = from[b * p.alpha_step + h];
    return x;
  }
}

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
         static_cast<uint64_t>(*id_of(p, column)) * p.column_step;
}

// The lanes' random bits, of edges from `row` to columns[0 .. count - 1]; behind them, of anything.
template <int HP>
SIAFU_INLINE Marks<HP> drop_bits(const Pass& p, int64_t row, const int32_t* columns, int count) {
  if constexpr (EDGES<HP> == 1) {
    const uint64_t counter = counter_of(p, row, columns[0]);
    uint64_t words[HP / 4];
    each<HP / 4>([&](auto q) SIAFU_LAMBDA { draw(p, words[q.value] = counter, q.value); });
    typename Lanes<HP>::H bits;
    __builtin_memcpy(&bits, words, sizeof bits);
    return __builtin_convertvector(bits, Marks<HP>);
  } else {
    using Counters = typename Lanes<EDGES<HP>>::U;
    uint64_t each_one[EDGES<HP>] = {};
    for (int b = 0; b < count; ++b) each_one[b] = counter_of(p, row, columns[b]);
    Counters bits;
    __builtin_memcpy(&bits, each_one, sizeof bits);
    draw(p, bits, 0);
    if constexpr (HP == 1) return __builtin_convertvector(bits & 0xffff, Marks<HP>);
    else return reinterpret_cast<Marks<HP>>((bits & 0xffff) | (bits << 16 & 0xffff00000000));  // little-endian
  }
}

// Edges first..last of a row into out and leaned. MORE: there may be coefficients that were given, or dropout.
template <class E, int MODE, bool MORE, int HP, int NV, bool FEW>
__attribute__((noinline)) State add_edges(const Pass& p, Stream& edges, int64_t row, int64_t first, int64_t last,
                                          bool self, float* out, float* leaned) {
  using F = Scores<HP>;
  constexpr int MOST = EDGES<HP>, BYTES = (NV ? NV : 1) * W * static_cast<int>(sizeof(E));
  constexpr int LINES = (BYTES + LINE - 1) / LINE;
  const F none = {};
  Sums<E, NV, FEW> sums(p);
  Weigher<HP> w(p);
  Marks<HP> edge_of = {};
  if constexpr (MOST > 1) edge_of = iota() / HP;
  const bool given = MORE && p.alpha, drops = MORE && p.drop_below;  // once: no store can change them here
  const auto add = [&](const char* source, int b, auto strand) SIAFU_LAMBDA {
    sums.template add<strand.value>(
        reinterpret_cast<const E*>(source), [&](Ints head) SIAFU_LAMBDA { return w.plain_of(b, head); },
        [&](Ints head) SIAFU_LAMBDA { return w.bent_of(b, head); });
  };
  const auto count = [&](F delta, const int32_t* columns, int number) SIAFU_LAMBDA {
    w.template count<MODE>(delta, edge_of, number, drops, [&](F& plain, F& bent) SIAFU_LAMBDA {
      const Marks<HP> stays = drop_bits<HP>(p, row, columns, number) >= p.drop_below;
      plain = stays ? plain * p.keep_scale : none, bent = stays ? bent * p.keep_scale : none;
    });
  };
  const bool marked = MODE == BACKWARD && p.own_rows;  // else nobody wants what delta is for
  if (!given) w.own = repeat<HP>(p.own + row * p.total_step, p.heads);
  if (self) {
    const float* scores = reinterpret_cast<const float*>(scores_of(p, row));
    const auto score = [&](int number) SIAFU_LAMBDA { return repeat<HP>(scores + number * p.score_step, p.heads); };
    if (given) {
      w.take(p, alphas<HP>(p, place_of(p, row), 1));
    } else {
      int number = 1;
      w.begin(p, score(0));
      w.template weigh<MODE, true>(p, score(0), MODE == BACKWARD ? score(1) : none,
                                   [](F x) SIAFU_LAMBDA { return x; }, edge_of, number, sums);
    }
    const int32_t column = static_cast<int32_t>(row);
    count(marked ? score(2) : none, &column, 1);
    add(row_of(p, row), 0, Constant<0>{});
  }
  edges.template fetch_until<MODE, LINES>(p, first + p.ahead, drops);
  if (MODE == ATTEND && !self && first < last && !given)
    w.begin(p, repeat<HP>(reinterpret_cast<const float*>(edges.scores[first & Stream::MASK]), p.heads));
  const int64_t place = given ? place_of(p, row) + p.add_self - p.indptr[row] : 0;  // of the coefficients of edge 0
  for (int64_t e = first, done; e < last; e += done) {
    int number = MOST == 1 ? 1 : last - e < MOST ? static_cast<int>(last - e) : MOST;
    if (given) {
      w.take(p, alphas<HP>(p, place + e, number));
    } else {
      w.template weigh<MODE, false>(p, collect<HP>(edges, e, 0, p.heads),
                                    MODE == BACKWARD ? collect<HP>(edges, e, p.score_step, p.heads) : none,
                                    [&](F x) SIAFU_LAMBDA { return p.weight ? x * edge_weights<HP>(p, e, number) : x; },
                                    edge_of, number, sums);
    }
    done = MOST == 1 ? 1 : number;
    count(marked ? collect<HP>(edges, e, 2 * p.score_step, p.heads) : none, p.indices + e, number);
    int b = 0;
    for (; b + sums.STRANDS <= number; b += sums.STRANDS)
      each<sums.STRANDS>([&](auto strand) SIAFU_LAMBDA {
        edges.template fetch<MODE, LINES>(p, drops);
        add(edges.row[(e + b + strand.value) & Stream::MASK], b + strand.value, strand);
      });
    if (sums.STRANDS == 1 || b == number) continue;
    edges.template fetch<MODE, LINES>(p, drops);
    add(edges.row[(e + b) & Stream::MASK], b, Constant<0>{});
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

// An instance of add_edges: it alone is compiled for every shape, for compiling takes its time.
using Add = State (*)(const Pass& p, Stream& edges, int64_t row, int64_t first, int64_t last, bool self, float* out,
                      float* leaned);

template <class E, int MODE, bool MORE, int HP>
Add for_columns(const Pass& p) {
  if constexpr (HP < 4) {
    constexpr int MOST = siafu::FEW_COLUMNS / W;
    if (p.few)
      return p.columns < W                   ? add_edges<E, MODE, MORE, HP, 0, true>
             : p.columns == W || MOST == 1     ? add_edges<E, MODE, MORE, HP, 1, true>
             : p.columns <= 2 * W || MOST == 2 ? add_edges<E, MODE, MORE, HP, MOST < 2 ? 1 : 2, true>
                                               : add_edges<E, MODE, MORE, HP, MOST, true>;
  }
  return p.columns < W        ? add_edges<E, MODE, MORE, HP, 0, false>
         : p.columns <= W     ? add_edges<E, MODE, MORE, HP, 1, false>
         : p.columns <= 2 * W ? add_edges<E, MODE, MORE, HP, 2, false>
         : p.columns <= 4 * W ? add_edges<E, MODE, MORE, HP, 4, false>
                              : add_edges<E, MODE, MORE, HP, VECTORS, false>;
}

template <class E, int MODE, bool MORE>
Add for_heads(const Pass& p) {
  return p.padded_heads == 1   ? for_columns<E, MODE, MORE, 1>(p)
         : p.padded_heads == 2 ? for_columns<E, MODE, MORE, 2>(p)
         : p.padded_heads == 4 ? for_columns<E, MODE, MORE, 4>(p)
         : p.padded_heads == 8 ? for_columns<E, MODE, MORE, MAX_HEADS < 8 ? 4 : 8>(p)
                               : for_columns<E, MODE, MORE, MAX_HEADS < 16 ? 4 : 16>(p);
}

// The instance for the pass's rows, mode, heads and columns. Those without MORE are built where they pay: forward they are
// a twelfth faster.
template <class E>
Add instance(const Pass& p) {
  if (p.mode == BACKWARD) return for_heads<E, BACKWARD, true>(p);
#if !defined(SIAFU_SCALAR)
  if (!p.alpha && !p.drop_below) return for_heads<E, ATTEND, false>(p);
#endif
  return for_heads<E, ATTEND, true>(p);
}

Add instance(const Pass& p) { return p.bits16 ? instance<Bfloat16>(p) : instance<float>(p); }

void finish_row(const Pass& p, int64_t row, const State& s, float* out, float* leaned) {
  p.mode == ATTEND ? finish<ATTEND>(p, row, s, out, leaned) : finish<BACKWARD>(p, row, s, out, leaned);
}

void rows(const Pass& p, int64_t begin, int64_t end, float* scratch) {
  const Add add = instance(p);
  Stream edges(p, p.indptr[begin], p.indptr[end]);
  for (int64_t row = begin; row < end; ++row) {
    float* out = p.out + (row - p.start) * p.out_step;
    float* leaned = p.mode == ATTEND && p.leaned ? p.leaned + (row - p.start) * p.out_step : scratch;
    if (p.add_self) __builtin_prefetch(row_of(p, row + 1 < end ? row + 1 : row));
    const State s = add(p, edges, row, p.indptr[row], p.indptr[row + 1], p.add_self, out, leaned);
    finish_row(p, row, s, out, leaned);
  }
}

// The part first..last of a hub's edges; the first one has the vertex itself.
void segment(const Pass& p, int64_t row, int64_t first, int64_t last, float* partial) {
  Stream edges(p, first, last);
  const bool self = p.add_self && first == p.indptr[row];
  const State s = instance(p)(p, edges, row, first, last, self, partial, partial + p.columns);
  float* heads = partial + 2 * p.columns;
  for (int h = 0; h < p.heads; ++h) {
    heads[h] = s.reference[h];
    heads[siafu::MAX_HEADS + h] = s.total[h];
    heads[2 * siafu::MAX_HEADS + h] = s.leaned[h];
  }
}

inline float exponential_of(float x) { return exponential(Four{x, x, x, x})[0]; }

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
    total[h] = fused(ours[h], total[h], theirs[h] * other[siafu::MAX_HEADS + h]);
    leaned[h] = fused(ours[h], leaned[h], theirs[h] * other[2 * siafu::MAX_HEADS + h]);
  }
  for (int k = 0; k < 2; ++k)
    for (int j = 0; j < p.columns; ++j) {
      const int h = p.head_of[j];
      float& to = whole[k * p.columns + j];
      to = fused(ours[h], to, theirs[h] * part[k * p.columns + j]);
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
  finish_row(p, row, s, out, leaned);
}

// Of edges first..last of a row: products of its own row and their other ends', by head.
template <class E, class O>
void dots(const Pass& p, int64_t row, int64_t first, int64_t last) {
  const O* own = reinterpret_cast<const O*>(p.own_rows + row * p.own_row_bytes);
  float* out = p.out + (place_of(p, row) + p.add_self + first - p.indptr[row]) * p.out_step;
  Stream edges(p, first, last);
  const auto multiply = [&](int64_t column, const char* there, float* to) SIAFU_LAMBDA {
    const E* other = reinterpret_cast<const E*>(there);
    uint64_t bits = 0;
    const uint64_t counter = p.drop_below ? counter_of(p, row, column) : 0;
    for (int h = 0; h < p.heads; ++h) {
      to[h] = dot(own + h * p.width, other + h * p.width, p.width);
      if (!p.drop_below) continue;
      bits >>= 16;
      if (h % 4 == 0) draw(p, bits = counter, h / 4);
      to[h] = static_cast<int>(bits & 0xffff) >= p.drop_below ? to[h] * p.keep_scale : 0.0f;
    }
  };
  if (p.add_self && first == p.indptr[row]) multiply(row, row_of(p, row), out - p.out_step);
  for (int64_t e = first; e < last; ++e, out += p.out_step) {
    edges.fetch_until<ATTEND, 4>(p, e + 1 + p.ahead, p.drop_below);
    multiply(p.indices[e], edges.row[e & Stream::MASK], out);
  }
}

void edge_dot(const Pass& p, int64_t row, int64_t first, int64_t last) {
  const auto with = [&](auto own) {
    p.bits16 ? dots<Bfloat16, decltype(own)>(p, row, first, last) : dots<float, decltype(own)>(p, row, first, last);
  };
  p.own_bits16 ? with(Bfloat16{}) : with(0.0f);
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
