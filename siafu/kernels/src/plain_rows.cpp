// Nothing is fused here: a multiplication and an addition round the same on every processor.
#include "lanes.hpp"
#include "plain.hpp"

namespace siafu {
namespace {

constexpr int EACH = 8, TILE = 4;
typedef double Doubles __attribute__((vector_size(EACH * 8)));
typedef double LooseDoubles __attribute__((vector_size(EACH * 8), aligned(8), may_alias));

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

inline Doubles load(const double* from, int64_t valid) {
  if (valid >= EACH) return *(const LooseDoubles*)from;
  Doubles part = {};
  for (int64_t i = 0; i < valid; ++i) part[i] = from[i];
  return part;
}

// TILE rows of the result, EACH columns at a time.
void multiply(const DoubleProduct& p, int64_t row, int64_t end) {
  const int64_t steps = p.transposed ? p.n : p.k;
  const int64_t by_row = p.transposed ? 1 : p.left_stride, by_step = p.transposed ? p.left_stride : 1;
  for (; row < end; row += TILE) {
    const int64_t rows = least(TILE, end - row);
    const double* left[TILE];
    for (int64_t r = 0; r < TILE; ++r) left[r] = p.left + (row + least(r, rows - 1)) * by_row;
    for (int64_t column = 0; column < p.m; column += EACH) {
      const int64_t valid = least(EACH, p.m - column);
      Doubles sums[TILE] = {};
      for (int64_t s = 0; s < steps; ++s) {
        const Doubles right = load(p.right + s * p.right_stride + column, valid);
#pragma GCC unroll 4
        for (int r = 0; r < TILE; ++r) sums[r] += left[r][s * by_step] * right;
      }
      for (int64_t r = 0; r < rows; ++r) {
        double* out = p.out + (row + r) * p.out_stride + column;
        for (int64_t i = 0; i < valid; ++i) out[i] = p.add ? out[i] + sums[r][i] : sums[r][i];
      }
    }
  }
}

// Columns of ``out``: LINES lines from ``first`` on, or the rest of a row if there are none. A row that is read or written
// edge after edge, of D or of ``out``, stays in registers.
template <class T, int LINES, bool TRANSPOSED>
bool add_columns(const SparseProduct& p, int64_t first) {
  using Values = typename Line<T>::Loose;
  const T *data = (const T*)p.data, *rows = (const T*)p.rows + first;
  T* out = (T*)p.out + first;
  for (int64_t s = 0; s < p.n; ++s) {
    Values own[LINES + 1];
    T* const own_row = TRANSPOSED ? (T*)rows + s * p.m : out + s * p.m;
    for (int l = 0; l < LINES; ++l) own[l] = *(const Values*)(own_row + l * Line<T>::EACH);
    for (int64_t e = p.indptr[s]; e < p.indptr[s + 1]; ++e) {
      const int64_t column = p.indices[e];
      if (column < 0 || column >= p.k) return false;
      const T value = data[e];
      T* const other = (TRANSPOSED ? out : (T*)rows) + column * p.m;
      for (int l = 0; l < LINES; ++l) {
        Values& there = *(Values*)(other + l * Line<T>::EACH);
        if (TRANSPOSED)
          there += value * own[l];
        else
          own[l] += value * there;
      }
      if (!LINES) {
        T* const to = TRANSPOSED ? other : own_row;
        const T* const from = TRANSPOSED ? own_row : other;
        for (int64_t i = 0; i < p.m - first; ++i) to[i] += value * from[i];
      }
    }
    if (!TRANSPOSED)
      for (int l = 0; l < LINES; ++l) *(Values*)(own_row + l * Line<T>::EACH) = own[l];
  }
  return true;
}

template <class T, bool TRANSPOSED>
bool multiply_sparse(const SparseProduct& p) {
  constexpr int64_t EACH = Line<T>::EACH;
  int64_t first = 0;
  bool fits = true;
  for (; fits && first + 2 * EACH <= p.m; first += 2 * EACH) fits = add_columns<T, 2, TRANSPOSED>(p, first);
  for (; fits && first + EACH <= p.m; first += EACH) fits = add_columns<T, 1, TRANSPOSED>(p, first);
  return fits && (first == p.m || add_columns<T, 0, TRANSPOSED>(p, first));
}

bool sparse(const SparseProduct& p) {
  if (p.is_double) return p.transposed ? multiply_sparse<double, true>(p) : multiply_sparse<double, false>(p);
  return p.transposed ? multiply_sparse<float, true>(p) : multiply_sparse<float, false>(p);
}

// In eight sums, one after another, which are added up along a tree.
template <class T>
void dots_of(const Dots& d) {
  const T *a = (const T*)d.a, *b = (const T*)d.b;
  T* out = (T*)d.out;
  for (int64_t head = 0; head < d.n * d.heads; ++head, a += d.width, b += d.width) {
    T sums[EACH] = {};
    int64_t i = 0;
    for (; i + EACH <= d.width; i += EACH)
#pragma GCC unroll 8
      for (int k = 0; k < EACH; ++k) sums[k] += a[i + k] * b[i + k];
    for (int k = 0; i + k < d.width; ++k) sums[k] += a[i + k] * b[i + k];
    out[head] = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  }
}

void dots(const Dots& d) { d.is_double ? dots_of<double>(d) : dots_of<float>(d); }

}  // namespace

extern const PlainRows SIAFU_PASTE(plain_rows_, SIAFU_ISA) = {multiply, sparse, dots};

}  // namespace siafu
