// Edges of a row added up, for one instruction set: every edge is read once, its score is made again where it is needed, and
// no tensor over the edges exists.
//
// One vector of exponentials makes the weights of one edge, or of many if there are one or two heads; then their rows
// are added to sums that stay in registers until the row ends.
//
// The softmax needs no pass of its own: weights are e^(score - reference), where the reference of a row and head is
// its first edge's score, until a score comes that is more than MARGIN above it. Then sums are scaled to the greater
// reference. It is never above the maximum, so that nothing that counts is lost to underflow; and e^MARGIN leaves room
// for sums over 2^31 edges.
//
// Its instances take longer to compile than all the other kernels: attention_<pass>_<rows>.cpp hold a part of them each, so
// that processors compile side by side.
#pragma once
#include "attention_edges.hpp"

namespace {

constexpr float MARGIN = 32.0f;

// Scores are in vectors of one edge, or of several where its heads would fill less than half of one: lane i belongs to edge
// i / HP and head i mod HP, where HP is the number of heads, padded to a power of two.
template <int HP>
constexpr int SCORES = HP < 4 ? 8 : HP;
template <int HP>
constexpr int EDGES = SCORES<HP> / HP;
template <int HP>
using Scores = typename Lanes<SCORES<HP>>::F;
template <int HP>
using Marks = typename Lanes<SCORES<HP>>::I;

template <int HP>
SIAFU_INLINE Scores<HP> load_heads(const float* from, int heads) {
  Scores<HP> x = {};
#if defined(SIAFU_AVX512)
  load_first(x, from, heads);
#else
  if (heads == HP)
    __builtin_memcpy(&x, from, 4 * HP);
  else
    for (int h = 0; h < heads; ++h) x[h] = from[h];
#endif
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

// Sums of NV vectors of columns (0: of no more columns than a vector has), plain and times the slope, in registers. Those of a
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
  // Passes of one vector or less are rare here, except with four heads: they take instances that other calls need anyway.
  constexpr bool OFTEN = HP == 4;
  constexpr int ONE = PARTS_ARE_CHEAP && !OFTEN ? 0 : 1;
  return p.columns < W        ? add_edges<E, MODE, true, HP, 0, false>
         : p.columns <= W     ? add_edges<E, MODE, MORE || !OFTEN, HP, ONE, false>
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

// The instance for the pass's heads and columns. Those without MORE are built where they pay: forward, of float32, they
// are a tenth faster; of bfloat16 a twentieth.
template <class E, int MODE>
Add instance(const Pass& p) {
#if !defined(SIAFU_SCALAR)
  if constexpr (MODE == ATTEND && sizeof(E) == 4)
    if (!p.alpha && !p.drop_below) return for_heads<E, MODE, false>(p);
#endif
  return for_heads<E, MODE, true>(p);
}

template <class E, int MODE>
void rows(const Pass& p, int64_t begin, int64_t end, float* scratch) {
  const Add add = instance<E, MODE>(p);
  Stream edges(p, p.indptr[begin], p.indptr[end]);
  for (int64_t row = begin; row < end; ++row) {
    float* out = p.out + (row - p.start) * p.out_step;
    float* leaned = p.mode == ATTEND && p.leaned ? p.leaned + (row - p.start) * p.out_step : scratch;
    if (p.add_self) __builtin_prefetch(row_of(p, row + 1 < end ? row + 1 : row));
    const State s = add(p, edges, row, p.indptr[row], p.indptr[row + 1], p.add_self, out, leaned);
    finish<MODE>(p, row, s, out, leaned);
  }
}

// The part first..last of a hub's edges; the first one has the vertex itself.
template <class E, int MODE>
void segment(const Pass& p, int64_t row, int64_t first, int64_t last, float* partial) {
  Stream edges(p, first, last);
  const bool self = p.add_self && first == p.indptr[row];
  const State s = instance<E, MODE>(p)(p, edges, row, first, last, self, partial, partial + p.columns);
  float* heads = partial + 2 * p.columns;
  for (int h = 0; h < p.heads; ++h) {
    heads[h] = s.reference[h];
    heads[siafu::MAX_HEADS + h] = s.total[h];
    heads[2 * siafu::MAX_HEADS + h] = s.leaned[h];
  }
}

}  // namespace

// Defines what attention_rows.cpp picks from, of one instruction set.
#define SIAFU_ATTENTION(name, E, MODE)                                                \
  namespace siafu {                                                                   \
  extern const AttentionEdges SIAFU_PASTE(SIAFU_PASTE(attention_, name), SIAFU_ISA) = \
      {rows<E, MODE>, segment<E, MODE>};                                              \
  }
