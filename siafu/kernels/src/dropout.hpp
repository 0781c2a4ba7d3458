// Rows without what their mask drops, which is made on the way: siafu/ops.py (dropout_mask) says which entries those are.
#pragma once
#include <cstdint>

#include "isa.hpp"

namespace siafu {

// Mirrored by siafu/kernels/dropout.py.
struct Dropout {
  const char* rows;         // n rows of m, ``stride`` bytes apart; null: of ones
  const int64_t* vertices;  // [n]
  char* out;                // [n, m]; may be ``rows``
  int64_t stride, n, m;
  uint64_t key;       // of the (seed, epoch, layer)
  float scale;        // of what is kept
  int32_t threshold;  // what 16 bits must reach to be kept
  int32_t bits;       // rows and out are bfloat16, not float32
  int32_t threads;
};

// Mirrored by siafu/kernels/dropout.py.
struct SparseDropout {
  const int64_t* indptr;    // [n + 1], from 0
  const int32_t* indices;   // [indptr[n]]
  const float* data;        // likewise
  const int64_t* vertices;  // [n]
  int64_t* out_indptr;      // [n + 1]
  int32_t* out_indices;     // room for all: as many are written as out_indptr[n] says
  float* out_data;
  int64_t n;
  uint64_t key;
  float scale;
  int32_t threshold;
};

struct DropoutRows {
  void (*dropped)(const Dropout&, int64_t row, int64_t end);
  void (*sparse)(const SparseDropout&);
};

SIAFU_DECLARE(DropoutRows, dropout_rows_)

}  // namespace siafu
