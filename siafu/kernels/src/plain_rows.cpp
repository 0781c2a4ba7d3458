// Nothing is fused here: a multiplication and an addition round the same on every processor.
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

template <class T>
bool multiply_sparse(const SparseProduct& p) {
  const T *data = (const T*)p.data, *rows = (const T*)p.rows;
  T* out = (T*)p.out;
  for (int64_t row = 0; row < p.n; ++row)
    for (int64_t e = p.indptr[row]; e < p.indptr[row + 1]; ++e) {
      const int64_t column = p.indices[e];
      if (column < 0 || column >= p.k) return false;
      const T* from = rows + (p.transposed ? row : column) * p.m;
      T* to = out + (p.transposed ? column : row) * p.m;
      const T value = data[e];
      for (int64_t i = 0; i < p.m; ++i) to[i] += value * from[i];
    }
  return true;
}

bool sparse(const SparseProduct& p) { return p.is_double ? multiply_sparse<double>(p) : multiply_sparse<float>(p); }

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
