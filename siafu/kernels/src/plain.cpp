#include "plain.hpp"

#include <algorithm>
#include <vector>

#include "threads.hpp"

namespace {

// Gustavson (ACM TOMS 4(3), 1978): a row of the result is summed in a dense row, of which we know the columns in use.
template <class T>
bool multiply_both(const siafu::SparseSquare& call) {
  const T *data = static_cast<const T*>(call.data), *other = static_cast<const T*>(call.other_data);
  T* out = static_cast<T*>(call.out_data);
  std::vector<T> sums(call.m);
  std::vector<int64_t> row_of(call.m, -1);
  std::vector<int32_t> used;
  int64_t count = call.out_indptr[0] = 0;
  for (int64_t row = 0; row < call.n; ++row) {
    used.clear();
    for (int64_t e = call.indptr[row]; e < call.indptr[row + 1]; ++e) {
      const int64_t middle = call.indices[e];
      if (middle < 0 || middle >= call.k) return false;
      const T value = data[e];
      for (int64_t f = call.other_indptr[middle]; f < call.other_indptr[middle + 1]; ++f) {
        const int32_t column = call.other_indices[f];
        if (column < 0 || column >= call.m) return false;
        if (row_of[column] != row) {
          row_of[column] = row;
          sums[column] = T(0);
          used.push_back(column);
        }
        sums[column] += value * other[f];
      }
    }
    if (call.out_indices) {
      std::sort(used.begin(), used.end());
      std::copy(used.begin(), used.end(), call.out_indices + count);
      for (size_t i = 0; i < used.size(); ++i) out[count + i] = sums[used[i]];
    }
    call.out_indptr[row + 1] = count += used.size();
  }
  return true;
}

}  // namespace

SIAFU_EXPORT void siafu_multiply_doubles(const siafu::DoubleProduct* call) {
  siafu::parallel_rows(call->transposed ? call->k : call->n, 64, call->threads, [call](int64_t row, int64_t end) {
    (SIAFU_PICK(siafu::plain_rows_)).multiply(*call, row, end);
  });
}

// 0, or 1 if a column of S is out of range.
SIAFU_EXPORT int siafu_multiply_sparse(const siafu::SparseProduct* call) {
  return !(SIAFU_PICK(siafu::plain_rows_)).sparse(*call);
}

// As above, of either matrix.
SIAFU_EXPORT int siafu_multiply_sparse_both(const siafu::SparseSquare* call) {
  return !(call->is_double ? multiply_both<double>(*call) : multiply_both<float>(*call));
}

SIAFU_EXPORT void siafu_dots(const siafu::Dots* call) { (SIAFU_PICK(siafu::plain_rows_)).dots(*call); }
