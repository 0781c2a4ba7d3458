// The loops over pairs, compiled once per instruction set: all of them add up in the same order, nothing is fused.
#include "hash.hpp"
#include "lanes.hpp"
#include "pairs.hpp"

namespace siafu {
namespace {

constexpr int64_t AHEAD = 8;      // edges: their rows are told to the cache
constexpr int64_t PIECE = 512;    // edges that are summed in one go
constexpr int64_t TOGETHER = 64;  // edges that are drawn before any is written

// Of N numbers, halves onto each other.
template <class T, int N>
struct Total {
  typedef T Values __attribute__((vector_size(N * sizeof(T))));
  static inline __attribute__((always_inline)) T of(Values x) {
    typename Total<T, N / 2>::Values low, high;
    __builtin_memcpy(&low, &x, sizeof low);
    __builtin_memcpy(&high, (const char*)&x + sizeof low, sizeof high);
    return Total<T, N / 2>::of(low + high);
  }
};

template <class T>
struct Total<T, 1> {
  typedef T Values;
  static inline T of(T x) { return x; }
};

inline int64_t other_of(const PairRows& p, int64_t edge) { return p.index ? p.index[edge] : edge; }

// The row of the edge, which one further ahead is fetched for.
template <class T>
inline const T* other_row(const PairRows& p, int64_t edge, int64_t first, int64_t columns) {
  const T* const others = (const T*)p.others + first;
  if (edge + AHEAD < p.m) {
    const char* const next = (const char*)(others + other_of(p, edge + AHEAD) * p.width);
    for (int64_t at = 0; at < columns * (int64_t)sizeof(T); at += 64) __builtin_prefetch(next + at);
  }
  return others + other_of(p, edge) * p.width;
}

// In as many sums as a line has numbers, one line after another, which are added up by halves.
template <class T>
void dots(const PairRows& p, int64_t row, int64_t end) {
  constexpr int64_t EACH = Line<T>::EACH;
  const T* own = (const T*)p.own + row * p.width;
  for (; row < end; ++row, own += p.width)
    for (int64_t e = p.indptr[row]; e < p.indptr[row + 1]; ++e) {
      const T* const other = other_row<T>(p, e, 0, p.width);
      typename Line<T>::Values lines = {};
      int64_t i = 0;
      for (; i + EACH <= p.width; i += EACH)
        lines += *(const typename Line<T>::Loose*)(own + i) * *(const typename Line<T>::Loose*)(other + i);
      if (i < p.width) {
        T rest[EACH] = {};
        for (int64_t k = 0; i + k < p.width; ++k) rest[k] = own[i + k] * other[i + k];
        typename Line<T>::Values last;
        __builtin_memcpy(&last, rest, sizeof last);
        lines += last;
      }
      ((T*)p.out)[e] = Total<T, EACH>::of(lines);
    }
}

template <class T>
void products(const PairRows& p, int64_t row, int64_t end) {
  const T* own = (const T*)p.own + row * p.width;
  for (; row < end; ++row, own += p.width)
    for (int64_t e = p.indptr[row]; e < p.indptr[row + 1]; ++e) {
      const T* const other = other_row<T>(p, e, 0, p.width);
      T* const out = (T*)p.out + e * p.width;
      for (int64_t i = 0; i < p.width; ++i) out[i] = own[i] * other[i];
    }
}

// Columns of ``out``: LINES lines from ``first`` on, which stay in registers, or the rest of a row if there are none. Edge
// after edge, in pieces whose sums are added up: of many edges one sum would lose what a float is too short for.
template <class T, int LINES, bool SCALED>
void sum_columns(const PairRows& p, int64_t row, int64_t end, int64_t first) {
  using Values = typename Line<T>::Values;
  using Loose = typename Line<T>::Loose;
  constexpr int64_t EACH = Line<T>::EACH;
  const int64_t columns = LINES ? LINES * EACH : p.width - first;
  for (; row < end; ++row) {
    T* const out = (T*)p.out + row * p.width + first;
    for (int64_t i = 0; i < columns; ++i) out[i] = 0;
    for (int64_t e = p.indptr[row], last; e < p.indptr[row + 1]; e = last) {
      last = e + PIECE < p.indptr[row + 1] ? e + PIECE : p.indptr[row + 1];
      Values sums[LINES + 1] = {};
      T rest[EACH] = {};
      for (; e < last; ++e) {
        const T* const other = other_row<T>(p, e, first, columns);
        const T* const values = (const T*)p.values + (SCALED ? e : e * p.width + first);
        for (int l = 0; l < LINES; ++l)
          sums[l] += (SCALED ? Values{} + values[0] : *(const Loose*)(values + l * EACH)) * *(const Loose*)(other + l * EACH);
        if (!LINES)
          for (int64_t i = 0; i < columns; ++i) rest[i] += values[SCALED ? 0 : i] * other[i];
      }
      for (int l = 0; l < LINES; ++l) *(Loose*)(out + l * EACH) += sums[l];
      if (!LINES)
        for (int64_t i = 0; i < columns; ++i) out[i] += rest[i];
    }
  }
}

template <class T, bool SCALED>
void sums(const PairRows& p, int64_t row, int64_t end) {
  constexpr int64_t EACH = Line<T>::EACH;
  int64_t first = 0;
  for (; first + 4 * EACH <= p.width; first += 4 * EACH) sum_columns<T, 4, SCALED>(p, row, end, first);
  for (; first + EACH <= p.width; first += EACH) sum_columns<T, 1, SCALED>(p, row, end, first);
  if (first < p.width) sum_columns<T, 0, SCALED>(p, row, end, first);
}

template <class T>
void rows_of(const PairRows& p, int64_t row, int64_t end) {
  if (p.operation == PAIR_DOTS) return dots<T>(p, row, end);
  if (p.operation == PAIR_PRODUCTS) return products<T>(p, row, end);
  p.operation == PAIR_SCALED ? sums<T, true>(p, row, end) : sums<T, false>(p, row, end);
}

void rows(const PairRows& p, int64_t row, int64_t end) {
  p.is_double ? rows_of<double>(p, row, end) : rows_of<float>(p, row, end);
}

// What is drawn of the rows lies where the pool of the first of them does. Each edge is written, and the next one over it if
// it is not drawn: no choice that a processor would have to guess.
void draw(const PairDraw& d, int64_t row, int64_t end) {
  int64_t drawn = d.indptr[row];
  for (; row < end; ++row) {
    const int64_t before = drawn;
    const uint64_t own = static_cast<uint64_t>(d.own[row]);
    for (int64_t first = d.indptr[row]; first < d.indptr[row + 1]; first += TOGETHER) {
      const int64_t left = d.indptr[row + 1] - first, count = left < TOGETHER ? left : TOGETHER;
      const int32_t* const columns = d.columns + first;
      const uint8_t* const kind = d.kind + first;
      uint64_t hash[TOGETHER];
      for (int64_t i = 0; i < count; ++i) {
        const uint64_t other = static_cast<uint64_t>(d.ids[columns[i]]);
        const uint64_t less = own < other ? own : other, more = own < other ? other : own;
        hash[i] = mixed(less * SOURCE_STEP + more * TARGET_STEP + d.key);
      }
      for (int64_t i = 0; i < count; ++i) {
        const bool is_true = kind[i] == d.true_kind;
        d.out_columns[drawn] = columns[i];
        d.out_true[drawn] = is_true;
        drawn += is_true | ((hash[i] & 0xFFFF) >= static_cast<uint64_t>(d.threshold));
      }
    }
    d.out_indptr[row + 1] = drawn - before;
  }
}

}  // namespace

extern const PairFunctions SIAFU_PASTE(pairs_rows_, SIAFU_ISA) = {rows, draw};

}  // namespace siafu
