// Pairs of rows that edges name, each read where it lies: a row of pairs is never made but where it is the result.
#pragma once
#include <cstdint>

#include "isa.hpp"

namespace siafu {

enum PairOperation {
  PAIR_DOTS,      // out [m]: <own_v, other_e>
  PAIR_PRODUCTS,  // out [m, width]: own_v * other_e, number by number
  PAIR_SUMS,      // out [n, width]: the sum over v's edges of values_e * other_e
  PAIR_SCALED,    // the same, of one value an edge
};

// Mirrored by siafu/kernels/pairs.py, as is the order of the operations.
struct PairRows {
  const int64_t* indptr;               // [n + 1]: edges of each row v
  const int32_t* index;                // [m], in 0..k-1: an edge's other row; null: it has its own
  const void *own, *others, *values;   // float, or double as ``is_double`` says; [n, width], [k, width], [m, width or 1]
  void* out;
  int64_t n, m, k, width;
  int32_t is_double, operation, threads;
};

// An epoch's pairs of those that there are: all true ones, and of the others those whose random bits reach ``threshold``.
// ``siafu.ops.edge_dropout`` says which bits; they do not care which end is which. Mirrored by siafu/kernels/pairs.py.
struct PairDraw {
  const int64_t* indptr;   // [n + 1]
  const int32_t* columns;  // [m], in 0..num_ids-1
  const uint8_t* kind;     // [m]
  const int64_t* ids;      // of what columns stand for
  const int64_t* own;      // of the rows, [n]
  int64_t* out_indptr;     // [n + 1]
  int32_t* out_columns;    // [m], of which the first out_indptr[n] are drawn
  uint8_t* out_true;       // likewise
  int64_t n, m, num_ids;
  uint64_t key;
  int32_t threshold, true_kind, threads;
};

struct PairFunctions {
  void (*rows)(const PairRows&, int64_t row, int64_t end);
  void (*draw)(const PairDraw&, int64_t row, int64_t end);
};

SIAFU_DECLARE(PairFunctions, pairs_rows_)

}  // namespace siafu
