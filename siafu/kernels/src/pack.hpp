// Rows on their way into a table: scaled, rounded to what the table stores, and cut into its column tiles.
#pragma once
#include <cstdint>

#include "gather.hpp"

namespace siafu {

// Mirrored by siafu/kernels/rows.py. Rows and scale are float64 for a float64 table, else float32.
struct Pack {
  const void* rows;
  const void* scale;     // [num_rows] or null
  const int64_t* place;  // [num_rows], or null: first, first + 1, ...
  char* table;
  int64_t row_bytes, tile_bytes, tile;  // as in Source
  int64_t first, num_rows, width, stride;  // stride: values from row to row of `rows`
  int32_t type, threads;
};

struct PackRows {
  void (*pack)(const Pack&, int64_t row, int64_t end);
};

SIAFU_DECLARE(PackRows, pack_rows_)

}  // namespace siafu
