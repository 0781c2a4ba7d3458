// The inner loops of gather, compiled once per instruction set. No templates of the standard library here: the linker
// would merge them between instruction sets.
#include "gather.hpp"

#if defined(SIAFU_AVX512) || defined(SIAFU_AVX512BF16)
#define SIAFU_WIDE 1
#include <immintrin.h>
#elif defined(SIAFU_AVX2)
#include <immintrin.h>
#endif

namespace {

using siafu::Gather;
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
  // Short rows: the latency of an addition per edge would cost more than the reading, so four edges are added at a time.
  static constexpr bool GROUPS = VECTORS * BYTES <= 128;

  Vector v[VECTORS];

  static Columns zero() {
    Columns c;
    for (int k = 0; k < VECTORS; ++k) c.v[k] = Vector{};
    return c;
  }

  static Columns load(const char* row, const Strip& s) {
    const Value* values = reinterpret_cast<const Value*>(row);
    Columns c;
    for (int k = 0; k < VECTORS - 1; ++k) c.v[k] = Row::load(values + k * WIDTH);
    c.v[VECTORS - 1] = NARROW ? Row::load_part(values, s.count) : Row::load(values + s.last);
    return c;
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

  Columns operator+(const Columns& other) const {
    Columns c;
    for (int k = 0; k < VECTORS; ++k) c.v[k] = v[k] + other.v[k];
    return c;
  }

  Columns operator*(Sum factor) const {
    Columns c;
    for (int k = 0; k < VECTORS; ++k) c.v[k] = v[k] * factor;
    return c;
  }

  void clip() {  // nan stays nan
    for (int k = 0; k < VECTORS; ++k) v[k] = v[k] < Vector{} ? Vector{} : v[k];
  }
};

inline const char* row_of(const Strip& s, int64_t column) {
  return column < s.num_base ? s.base + column * s.base_bytes : s.ghosts + column * s.ghost_bytes;
}

// Whole lines, as many as a strip of `bytes` covers.
template <int NUM_BYTES>
inline void fetch(const char* row) {
  for (int at = 0; at < NUM_BYTES; at += 64) __builtin_prefetch(row + at);
}

template <class Row, int VECTORS, bool NARROW, bool WEIGHTED>
struct Kernel {
  using C = Columns<Row, VECTORS, NARROW>;
  using Sum = typename C::Sum;
  static constexpr int NUM_BYTES = C::WIDTH * VECTORS * static_cast<int>(sizeof(typename C::Value));

  static C term(const Gather& g, const Strip& s, const char* rows, int64_t row_bytes, int64_t edge) {
    const C row = C::load(rows + g.indices[edge] * row_bytes, s);
    return WEIGHTED ? row * static_cast<Sum>(g.weight[edge]) : row;
  }

  // Adds edges whose rows all lie in one array.
  static void add(const Gather& g, const Strip& s, int64_t edge, int64_t end, bool ghosts, C& sums) {
    const char* rows = ghosts ? s.ghosts : s.base;
    const int64_t row_bytes = ghosts ? s.ghost_bytes : s.base_bytes;
    const int64_t ahead = s.prefetch, fetched = g.num_edges - ahead - 4;
    if (C::GROUPS) {
      for (; edge + 4 <= end; edge += 4) {
        if (edge < fetched)
          for (int i = 0; i < 4; ++i) fetch<NUM_BYTES>(row_of(s, g.indices[edge + ahead + i]));
        sums = sums + ((term(g, s, rows, row_bytes, edge) + term(g, s, rows, row_bytes, edge + 1)) +
                       (term(g, s, rows, row_bytes, edge + 2) + term(g, s, rows, row_bytes, edge + 3)));
      }
    }
    for (; edge < end; ++edge) {
      if (edge < fetched) fetch<NUM_BYTES>(row_of(s, g.indices[edge + ahead]));
      sums = sums + term(g, s, rows, row_bytes, edge);
    }
  }

  // Adds edges of one row: columns are sorted, ghosts come last.
  static void sum(const Gather& g, const Strip& s, int64_t edge, int64_t end, C& sums) {
    if (edge == end) return;
    if (g.indices[end - 1] < s.num_base) return add(g, s, edge, end, false, sums);
    int64_t low = edge, high = end;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (g.indices[middle] < s.num_base)
        low = middle + 1;
      else
        high = middle;
    }
    add(g, s, edge, low, false, sums);
    add(g, s, low, end, true, sums);
  }

  static void finish_row(const Gather& g, const Strip& s, int64_t row, C sums) {
    if (g.add_self) sums = sums + C::load(s.base + row * s.base_bytes, s);
    if (g.scale) sums = sums * static_cast<const Sum*>(g.scale)[row];
    if (g.add) {
      const Sum* add = static_cast<const Sum*>(g.add) + (row - g.start) * g.add_stride + s.first;
      sums = sums + C::load_sums(add, s);
    }
    if (g.bias) sums = sums + C::load_sums(static_cast<const Sum*>(g.bias) + s.first, s);
    if (g.relu) sums.clip();
    sums.store(static_cast<Sum*>(g.out) + (row - g.start) * g.out_stride + s.first, s);
  }

  static void rows(const Gather& g, const Strip& s, int64_t row, int64_t end) {
    for (; row < end; ++row) {
      if (siafu::is_hub(g.indptr, row)) continue;
      C sums = C::zero();
      sum(g, s, g.indptr[row], g.indptr[row + 1], sums);
      finish_row(g, s, row, sums);
    }
  }

  static void segment(const Gather& g, const Strip& s, int64_t edge, int64_t end, void* to) {
    C sums = C::zero();
    sum(g, s, edge, end, sums);
    __builtin_memcpy(to, &sums, sizeof sums);
  }

  static void finish(const Gather& g, const Strip& s, int64_t row, const void* from, int64_t segments) {
    C sums = C::zero();
    for (int64_t i = 0; i < segments; ++i) {
      C part;
      __builtin_memcpy(&part, static_cast<const char*>(from) + i * siafu::MAX_VECTORS * BYTES, sizeof part);
      sums = sums + part;
    }
    finish_row(g, s, row, sums);
  }

  static float drain(const Strip& s, const int32_t* indices, int64_t edge, int64_t end, int64_t num_edges) {
    C sums[4] = {C::zero(), C::zero(), C::zero(), C::zero()};
    const int64_t ahead = s.prefetch, fetched = num_edges - ahead - 4;
    for (; edge + 4 <= end; edge += 4)
      for (int i = 0; i < 4; ++i) {
        if (ahead && edge < fetched) fetch<NUM_BYTES>(s.base + indices[edge + ahead + i] * s.base_bytes);
        C& sum = sums[C::GROUPS ? i : 0];
        sum = sum + C::load(s.base + indices[edge + i] * s.base_bytes, s);
      }
    sums[0] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float total = 0;
    for (int k = 0; k < VECTORS; ++k)
      for (int lane = 0; lane < C::WIDTH; ++lane) total += static_cast<float>(sums[0].v[k][lane]);
    return total;
  }

  static constexpr StripKernel table() { return {rows, segment, finish, WEIGHTED ? nullptr : drain}; }
};

}  // namespace

// --- what gather.cpp picks from ---------------------------------------------------------------------------------------

// Rows of float32 and bfloat16 are what training gathers; those of the other types get by with fewer widths.
#define SIAFU_FEW(Row, weighted)                                                            \
  Kernel<Row, 1, false, weighted>::table(), Kernel<Row, 2, false, weighted>::table(),       \
      Kernel<Row, 3, false, weighted>::table(), Kernel<Row, 4, false, weighted>::table()
#define SIAFU_MANY(Row, weighted)                                                           \
  SIAFU_FEW(Row, weighted), Kernel<Row, 5, false, weighted>::table(),                       \
      Kernel<Row, 6, false, weighted>::table(), Kernel<Row, 7, false, weighted>::table(),   \
      Kernel<Row, 8, false, weighted>::table()
#define SIAFU_TYPE(Row, widths, max_vectors)                                                \
  {                                                                                         \
    lanes<Row>(), max_vectors, {{widths(Row, false)}, {widths(Row, true)}}, {               \
      Kernel<Row, 1, true, false>::table(), Kernel<Row, 1, true, true>::table()             \
    }                                                                                       \
  }

namespace siafu {

#if defined(SIAFU_AVX512BF16)  // nothing here that AVX-512 alone does not do
extern const GatherRows gather_rows_avx512bf16 = gather_rows_avx512;
#else
extern const GatherRows SIAFU_PASTE(gather_rows_, SIAFU_ISA) = {{
    SIAFU_TYPE(Float32, SIAFU_MANY, 8),
    SIAFU_TYPE(Float64, SIAFU_FEW, 4),
    SIAFU_TYPE(BFloat16, SIAFU_MANY, 8),
    SIAFU_TYPE(Float16, SIAFU_FEW, 4),
    SIAFU_TYPE(UInt8, SIAFU_FEW, 4),
}};
#endif

}  // namespace siafu
