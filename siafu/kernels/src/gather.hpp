// Gather: out[v] = scale[v] * (sum over the edges of row v of weight * X[column]  (+ X[v])) (+ add[v]) (+ bias) (relu).
//
// A row's columns are cut into strips of a few vectors, which stay in registers while the row's edges are summed. Rows lie
// in column tiles (siafu/kernels/rows.py); a strip never crosses one. What a row becomes depends on the row alone: edges
// are added in their order, in groups whose size depends on the strip, and a hub's edges in segments of fixed length.
#pragma once
#include <cstdint>

#include "isa.hpp"

namespace siafu {

enum RowType { float32 = 0, float64 = 1, bfloat16 = 2, float16 = 3, uint8 = 4, row_types = 5 };

// Rows in column tiles: column c of row u is at rows + (c / tile) * tile_bytes + u * row_bytes, plus (c % tile) values.
struct Source {
  const char* rows;
  int64_t row_bytes, tile_bytes, tile;
};

// Mirrored by siafu/kernels/gather.py. Sums, scale, bias, add and out are float64 for float64 rows, else float32.
struct Gather {
  const int64_t* indptr;   // [n + 1]
  const int32_t* indices;  // [num_edges], each a row of base
  const float* weight;     // [num_edges] or null
  Source base;
  int64_t num_columns;  // rows of base
  const void* scale;    // [n] or null
  const void* bias;     // [width] or null
  const void* add;      // [stop - start, width] or null
  void* out;            // [stop - start, width]
  int64_t add_stride, out_stride;  // values from row to row
  int64_t start, stop, width, num_edges;
  int32_t type, padded;  // padded: rows may be read up to the end of their last vector
  int32_t add_self, relu, threads, prefetch;  // prefetch: edges ahead, below 0: as measured to be best
};

// Some vectors' worth of columns, the same in every row.
struct Strip {
  const char* base;    // of row 0
  int64_t base_bytes;  // from row to row
  int64_t first;    // column
  int64_t last;     // values from `first` to the last vector: less than a whole vector from the one before if not padded
  int64_t count;    // values of the last vector that are stored
  int64_t vectors;
  int64_t prefetch;  // edges ahead; 0 close to the end of the edges
  bool far;          // the rows are more than the second-level cache holds, and are fetched into that one
};

constexpr int MAX_VECTORS = 8;
constexpr int GROUP = 4;  // edges that are added to each other before they are added to the sum, for short chains
// A row of more edges is a hub: threads share it, a segment each.
constexpr int64_t HUB = 16384, SEGMENT = 8192;

inline bool is_hub(const int64_t* indptr, int64_t row) { return indptr[row + 1] - indptr[row] > HUB; }

// Sums and finishes the columns of a strip in rows first..end. hubs: sums [hubs among them, width] that are there already.
using StripKernel = void (*)(const Gather&, const Strip&, int64_t first, int64_t end, const void* hubs);

struct TypeKernels {
  int64_t lanes;        // values in a vector
  int64_t max_vectors;  // in a strip
  StripKernel strips[2][MAX_VECTORS];  // by weighted, vectors - 1
  StripKernel narrow;                  // rows shorter than a vector that must not be read beyond their end
  // By vectors - 1, unweighted, of rows that have no more; of three, the rows have four. Null: not of this type.
  StripKernel packed[4];
};

struct GatherRows {
  TypeKernels types[row_types];
};

SIAFU_DECLARE(GatherRows, gather_rows_)

}  // namespace siafu
