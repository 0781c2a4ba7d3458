// The inner loops of gather, compiled once per instruction set. No templates of the standard library here: the linker
// would merge them between instruction sets.
#include "gather.hpp"

#include "fused.hpp"

#if defined(SIAFU_AVX512)
#define SIAFU_WIDE 1
#include <immintrin.h>
#elif defined(SIAFU_AVX2)
#include <immintrin.h>
#endif

namespace {

using siafu::Gather;
using siafu::GROUP;
using siafu::Strip;
using siafu::StripKernel;

#if defined(SIAFU_WIDE)
constexpr int BYTES = 64;
#elif defined(SIAFU_AVX2)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif
constexpr int LANES = BYTES / 4;

typedef float Float __attribute__((vector_size(BYTES)));
typedef double Double __attribute__((vector_size(BYTES)));
typedef uint32_t Bits __attribute__((vector_size(BYTES)));
typedef int32_t Int __attribute__((vector_size(BYTES)));
typedef uint16_t Half __attribute__((vector_size(BYTES / 2)));
typedef uint8_t Bytes __attribute__((vector_size(BYTES / 4)));

// --- values: how a vector of each row type is read -------------------------------------------------------------------

template <class Vector>
inline Vector read(const void* from) {
  Vector v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

template <class Vector, class Value>
inline Vector read_part(const Value* from, int64_t count) {
  Value values[sizeof(Vector) / sizeof(Value)] = {};
  for (int64_t i = 0; i < count; ++i) values[i] = from[i];
  return read<Vector>(values);
}

template <class Vector, class Value>
inline void write_part(Value* to, Vector v, int64_t count) {
  Value values[sizeof(Vector) / sizeof(Value)];
  __builtin_memcpy(values, &v, sizeof v);
  for (int64_t i = 0; i < count; ++i) to[i] = values[i];
}

#if defined(SIAFU_WIDE)
template <>
inline Float read_part<Float, float>(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from);
}
template <>
inline Double read_part<Double, double>(const double* from, int64_t count) {
  return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << count) - 1), from);
}
template <>
inline Half read_part<Half, uint16_t>(const uint16_t* from, int64_t count) {
  return reinterpret_cast<Half>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1), from));
}
template <>
inline Bytes read_part<Bytes, uint8_t>(const uint8_t* from, int64_t count) {
  return reinterpret_cast<Bytes>(_mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << count) - 1), from));
}
#endif

inline Float widen_half(Half bits) {  // float16 -> float32, exactly
#if defined(SIAFU_WIDE)
  return _mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(bits));  // GCC 12 warns of the form without a mask
#elif defined(SIAFU_AVX2)
  return _mm256_cvtph_ps(reinterpret_cast<__m128i>(bits));
#else
  const Bits wide = __builtin_convertvector(bits, Bits);
  const Bits magnitude = (wide & 0x7fff) << 13;
  const Float value = reinterpret_cast<Float>(magnitude) * 0x1p112f;  // the exponent's bias: 127 - 15
  const Bits special = reinterpret_cast<Bits>((wide & 0x7c00) == 0x7c00) & 0x7f800000;  // inf and nan
  return reinterpret_cast<Float>(reinterpret_cast<Bits>(value) | special | (wide & 0x8000) << 16);
#endif
}

struct Float32 {
  using Value = float;  // of a row
  using Sum = float;    // of what is computed
  using Vector = Float;
  static Vector load(const Value* from) { return read<Float>(from); }
  static Vector load_part(const Value* from, int64_t count) { return read_part<Float>(from, count); }
};

struct Float64 {
  using Value = double;
  using Sum = double;
  using Vector = Double;
  static Vector load(const Value* from) { return read<Double>(from); }
  static Vector load_part(const Value* from, int64_t count) { return read_part<Double>(from, count); }
};

struct BFloat16 {
  using Value = uint16_t;
  using Sum = float;
  using Vector = Float;
  // A vector of pairs gives those of even and of odd columns with one instruction each, which costs half of widening.
  static Vector even(Bits pairs) { return reinterpret_cast<Float>(pairs << 16); }
  static Vector odd(Bits pairs) { return reinterpret_cast<Float>(pairs & 0xffff0000); }
  static Vector widen(Half bits) { return reinterpret_cast<Float>(__builtin_convertvector(bits, Bits) << 16); }
  static Vector load(const Value* from) { return widen(read<Half>(from)); }
  static Vector load_part(const Value* from, int64_t count) { return widen(read_part<Half>(from, count)); }
};

struct Float16 {
  using Value = uint16_t;
  using Sum = float;
  using Vector = Float;
  static Vector load(const Value* from) { return widen_half(read<Half>(from)); }
  static Vector load_part(const Value* from, int64_t count) { return widen_half(read_part<Half>(from, count)); }
};

struct UInt8 {
  using Value = uint8_t;
  using Sum = float;
  using Vector = Float;
  static Vector widen(Bytes bytes) { return __builtin_convertvector(__builtin_convertvector(bytes, Int), Float); }
  static Vector load(const Value* from) { return widen(read<Bytes>(from)); }
  static Vector load_part(const Value* from, int64_t count) { return widen(read_part<Bytes>(from, count)); }
};

template <class Row>
constexpr bool HAS_PAIRS = false;
template <>
constexpr bool HAS_PAIRS<BFloat16> = true;

// Vectors of even and of odd columns become vectors of neighbours.
inline void interleave(Float& even, Float& odd) {
  Float low, high;
  for (int i = 0; i < LANES / 2; ++i) {
    low[2 * i] = even[i], low[2 * i + 1] = odd[i];
    high[2 * i] = even[LANES / 2 + i], high[2 * i + 1] = odd[LANES / 2 + i];
  }
  even = low, odd = high;
}

template <class Row>
constexpr int lanes() {
  return static_cast<int>(sizeof(typename Row::Vector) / sizeof(typename Row::Sum));
}

// --- one strip of columns ---------------------------------------------------------------------------------------------

// VECTORS vectors of one row; the last may overlap the one before it. NARROW: part of one vector.
template <class Row, int VECTORS, bool NARROW>
struct Columns {
  using Value = typename Row::Value;
  using Sum = typename Row::Sum;
  using Vector = typename Row::Vector;
  static constexpr int WIDTH = lanes<Row>();

  Vector v[VECTORS];

  static Columns zero() {
    Columns c;
    for (int k = 0; k < VECTORS; ++k) c.v[k] = Vector{};
    return c;
  }

  template <class Fewer>
  static Fewer first(const Columns& all) {
    Fewer c;
    __builtin_memcpy(c.v, all.v, sizeof c.v);
    return c;
  }

  // last, count: of the strip.
  static Vector load(const char* row, int k, int64_t last, int64_t count) {
    const Value* values = reinterpret_cast<const Value*>(row);
    if (NARROW) return Row::load_part(values, count);
    return Row::load(values + (k < VECTORS - 1 ? k * WIDTH : last));
  }

  static Columns load_sums(const Sum* values, const Strip& s) {
    Columns c;
    for (int k = 0; k < VECTORS - 1; ++k) c.v[k] = read<Vector>(values + k * WIDTH);
    c.v[VECTORS - 1] = s.count == WIDTH ? read<Vector>(values + s.last) : read_part<Vector>(values + s.last, s.count);
    return c;
  }

  void store(Sum* values, const Strip& s) const {
    for (int k = 0; k < VECTORS - 1; ++k) __builtin_memcpy(values + k * WIDTH, &v[k], sizeof(Vector));
    if (s.count == WIDTH)
      __builtin_memcpy(values + s.last, &v[VECTORS - 1], sizeof(Vector));
    else
      write_part(values + s.last, v[VECTORS - 1], s.count);
  }

  void operator+=(const Columns& other) {
    for (int k = 0; k < VECTORS; ++k) v[k] += other.v[k];
  }

  void operator*=(Sum factor) {
    for (int k = 0; k < VECTORS; ++k) v[k] *= factor;
  }

  void clip() {  // nan stays nan
    for (int k = 0; k < VECTORS; ++k) v[k] = v[k] < Vector{} ? Vector{} : v[k];
  }
};

// An edge's vector, or zeros: cheaper than a branch that is foretold wrongly at the end of every row.
template <class Vector>
inline Vector kept(Vector v, uint32_t mask) {
  return reinterpret_cast<Vector>(reinterpret_cast<Bits>(v) & mask);
}

enum Layout {
  ANY,
  PACKED,  // a row is as long as the strip: its address takes a shift, not a product
};

enum Weights {
  NO,
  YES,
  MAYBE,  // asked at every edge: for the rows that are gathered once per run, that there is less to compile
};

// Of VECTORS vectors; READ are read of every row: what fills a row may come in pairs.
template <class Row, int VECTORS, bool NARROW, Weights WEIGHTED, Layout LAYOUT, int READ = VECTORS>
struct Kernel {
  using C = Columns<Row, VECTORS, NARROW>;
  using Sums = Columns<Row, READ, NARROW>;
  using Sum = typename C::Sum;
  using Vector = typename C::Vector;
  static constexpr int NUM_BYTES = C::WIDTH * READ * static_cast<int>(sizeof(typename C::Value));
  // Sums of neighbouring vectors hold even and odd columns until their row is finished.
  static constexpr bool PAIRS = HAS_PAIRS<Row> && LAYOUT != ANY && READ % 2 == 0;

  static int64_t base_bytes(const Strip& s) { return LAYOUT == ANY ? s.base_bytes : NUM_BYTES; }

  // Inlined by force: GCC finds a function of prefetches without effect, and drops its calls.
  __attribute__((always_inline)) static void fetch(const Strip& s, int64_t column) {
    const char* row = s.base + column * base_bytes(s);
    if (s.far)
      for (int at = 0; at < NUM_BYTES; at += 64) __builtin_prefetch(row + at, 0, 2);
    else
      for (int at = 0; at < NUM_BYTES; at += 64) __builtin_prefetch(row + at);
  }

  static Vector load(const char* row, int k, const Strip& s) {
    return C::load(row, k, LAYOUT == ANY ? s.last : (VECTORS - 1) * C::WIDTH, s.count);
  }

  // Vector k; with PAIRS vectors k and k + 1, as even and odd columns.
  __attribute__((always_inline)) static void load(const char* row, int k, const Strip& s, Vector& x, Vector& y) {
    if constexpr (PAIRS) {
      const Bits pairs = read<Bits>(row + k * C::WIDTH * static_cast<int>(sizeof(typename C::Value)));
      x = Row::even(pairs), y = Row::odd(pairs);
    } else {
      x = y = load(row, k, s);
    }
  }

  // The sums of edges. There are s.prefetch + GROUP more behind them, or s.prefetch is 0.
  __attribute__((always_inline)) static Sums sum(const Gather& g, const Strip& s, int64_t edge, int64_t end) {
    Sums sums = Sums::zero();
    for (; edge + GROUP <= end; edge += GROUP) group<GROUP>(g, s, edge, GROUP, sums);
    if (edge < end) group<0>(g, s, edge, end - edge, sums);
    if constexpr (PAIRS)
      for (int k = 0; k < READ; k += 2) interleave(sums.v[k], sums.v[k + 1]);
    return sums;
  }

  // Adds the edges of one group: all if COUNT is GROUP, else `count` of them, at least one.
  template <int COUNT>
  __attribute__((always_inline)) static void group(const Gather& g, const Strip& s, int64_t edge, int64_t count,
                                                   Sums& sums) {
    const int32_t* ahead = g.indices + s.prefetch + edge;
    if (COUNT == GROUP || s.prefetch)
      for (int i = 0; i < GROUP; ++i) fetch(s, ahead[i]);
    const char* row[GROUP];
    Sum weight[GROUP];
    uint32_t keep[GROUP];
    for (int i = 0; i < GROUP; ++i) {
      const int64_t is_there = COUNT == GROUP ? -1 : (i - count) >> 63;  // all bits or none: the compiler must not branch
      const int64_t at = edge + (i & is_there);
      keep[i] = static_cast<uint32_t>(is_there);
      row[i] = s.base + g.indices[at] * base_bytes(s);
      weight[i] = WEIGHTED != NO && (WEIGHTED == YES || g.weight) ? static_cast<Sum>(g.weight[at]) : Sum(1);
    }
    for (int k = 0; k < READ; k += PAIRS ? 2 : 1) {
      Vector x[GROUP], y[GROUP];
      for (int i = 0; i < GROUP; ++i) {
        load(row[i], k, s, x[i], y[i]);
        if (COUNT != GROUP && i) x[i] = kept(x[i], keep[i]);
        if (PAIRS && COUNT != GROUP && i) y[i] = kept(y[i], keep[i]);
      }
      if (WEIGHTED != NO)
        for (int i = 0; i < GROUP; i += 2)
          x[i] = siafu::fused(x[i], weight[i] - Vector{}, x[i + 1] * weight[i + 1]), x[i + 1] = Vector{};
      sums.v[k] += (x[0] + x[1]) + (x[2] + x[3]);
      if (PAIRS) sums.v[k + 1] += (y[0] + y[1]) + (y[2] + y[3]);
    }
  }

  static void rows(const Gather& g, const Strip& s, int64_t row, int64_t end, const void* hubs) {
    const Sum* hub = static_cast<const Sum*>(hubs) + s.first;
    for (; row < end; ++row) {
      C sums;
      if (__builtin_expect(siafu::is_hub(g.indptr, row), 0))
        sums = C::load_sums(hub, s), hub += g.width;
      else
        sums = Sums::template first<C>(sum(g, s, g.indptr[row], g.indptr[row + 1]));
      if (g.add_self)
        for (int k = 0; k < VECTORS; ++k) sums.v[k] += load(s.base + row * s.base_bytes, k, s);
      if (g.scale) sums *= static_cast<const Sum*>(g.scale)[row];
      if (g.add) sums += C::load_sums(static_cast<const Sum*>(g.add) + (row - g.start) * g.add_stride + s.first, s);
      if (g.bias) sums += C::load_sums(static_cast<const Sum*>(g.bias) + s.first, s);
      if (g.relu) sums.clip();
      sums.store(static_cast<Sum*>(g.out) + (row - g.start) * g.out_stride + s.first, s);
    }
  }
};

template <class Row>
constexpr siafu::StripKernel three_of_four() {
  if constexpr (HAS_PAIRS<Row>) return Kernel<Row, 3, false, NO, PACKED, 4>::rows;
  return nullptr;
}

}  // namespace

// --- what gather.cpp picks from ---------------------------------------------------------------------------------------

// Rows of float32 and bfloat16 are what training gathers, most often without weights.
#define SIAFU_KERNEL(Row, vectors, weighted, layout) Kernel<Row, vectors, false, weighted, layout>::rows
#define SIAFU_FEW(Row, weighted)                                                        \
  SIAFU_KERNEL(Row, 1, weighted, ANY), SIAFU_KERNEL(Row, 2, weighted, ANY),             \
      SIAFU_KERNEL(Row, 3, weighted, ANY), SIAFU_KERNEL(Row, 4, weighted, ANY)
#define SIAFU_MANY(Row, weighted)                                                       \
  SIAFU_FEW(Row, weighted), SIAFU_KERNEL(Row, 5, weighted, ANY),                        \
      SIAFU_KERNEL(Row, 6, weighted, ANY), SIAFU_KERNEL(Row, 7, weighted, ANY),         \
      SIAFU_KERNEL(Row, 8, weighted, ANY)
#define SIAFU_PACKED(Row)                                                               \
  {                                                                                     \
    SIAFU_KERNEL(Row, 1, NO, PACKED), SIAFU_KERNEL(Row, 2, NO, PACKED),                 \
        three_of_four<Row>(),                                                           \
        SIAFU_KERNEL(Row, 4, NO, PACKED)                                                \
  }
#define SIAFU_TRAINED(Row)                                                              \
  {                                                                                     \
    lanes<Row>(), 8, {{SIAFU_MANY(Row, NO)}, {SIAFU_MANY(Row, YES)}},                   \
        Kernel<Row, 1, true, MAYBE, ANY>::rows, SIAFU_PACKED(Row)                       \
  }
#if defined(SIAFU_SCALAR)  // processors of before 2013: not worth the time that compiling takes
#undef SIAFU_TRAINED
#define SIAFU_TRAINED(Row) SIAFU_OTHER(Row)
#endif
#define SIAFU_OTHER(Row)                                                                \
  {                                                                                     \
    lanes<Row>(), 4, {{SIAFU_FEW(Row, MAYBE)}, {SIAFU_FEW(Row, MAYBE)}},                \
        Kernel<Row, 1, true, MAYBE, ANY>::rows, {}                                      \
  }

namespace siafu {

extern const GatherRows SIAFU_PASTE(gather_rows_, SIAFU_ISA) = {{
    SIAFU_TRAINED(Float32),
    SIAFU_OTHER(Float64),
    SIAFU_TRAINED(BFloat16),
    SIAFU_OTHER(Float16),
    SIAFU_OTHER(UInt8),
}};

}  // namespace siafu
