// Products in plain loops, each sum in the order of what is summed: float64, whose speed does not matter, and sparse rows.
// A BLAS rounds otherwise on every processor.
#pragma once
#include <cstdint>

#include "isa.hpp"

namespace siafu {

// X W or X^T D of float64, as ``Product`` of dense.hpp. Mirrored by siafu/kernels/dense.py. Strides are in numbers.
struct DoubleProduct {
  const double *left, *right;
  double* out;
  int64_t left_stride, right_stride, out_stride;
  int64_t n, k, m;
  int32_t add, transposed, threads;
};

// S D or S^T D of sparse rows S [n, k] (CSR) onto what ``out`` [n or k, m] holds. Mirrored by siafu/kernels/csr.py.
struct SparseProduct {
  const int64_t* indptr;   // [n + 1]
  const int32_t* indices;  // in 0..k-1
  const void *data, *rows;  // float, or double as ``is_double`` says; rows [k or n, m]
  void* out;
  int64_t n, k, m;
  int32_t is_double, transposed;
};

// S B of two sparse matrices, S [n, k] and B [k, m]. Mirrored by siafu/kernels/csr.py.
struct SparseSquare {
  const int64_t *indptr, *other_indptr;    // [n + 1], [k + 1]
  const int32_t *indices, *other_indices;  // columns
  const void *data, *other_data;           // float, or double as ``is_double`` says
  int64_t* out_indptr;                     // [n + 1]
  int32_t* out_indices;                    // [out_indptr[n]], ascending in each row; null: out_indptr alone is made
  void* out_data;                          // likewise
  int64_t n, k, m;
  int32_t is_double;
};

// out [n, heads]: the products of two rows, head by head. Mirrored by siafu/kernels/functions.py.
struct Dots {
  const void *a, *b;  // [n, heads * width]
  void* out;
  int64_t n, heads, width;
  int32_t is_double;
};

struct PlainRows {
  void (*multiply)(const DoubleProduct&, int64_t row, int64_t end);  // rows of out
  bool (*sparse)(const SparseProduct&);                             // false: a column is out of range
  void (*dots)(const Dots&);
};

SIAFU_DECLARE(PlainRows, plain_rows_)

}  // namespace siafu
