// What gathers ask of a CSR: whether the rows at its edges' ends are far from the processor, and whether it leads anywhere but
// where it may, for kernels index with what it holds. Columns are looked at a chunk at a time, just before the chunk is worked
// on: what is read here is then still in the cache.
#pragma once
#include <cstdint>

namespace siafu {

// Rows at edges' ends, if they are of more bytes, are fetched ahead into the second-level cache instead of the first: a core
// waits for few lines at a time on their way to the first (Zen 4: 24), and for twice as many on their way to the second.
constexpr int64_t FAR_BYTES = 4 << 20;

// Row pointers start..stop never fall, and stay in 0..num_edges.
inline bool rows_rise(const int64_t* indptr, int64_t start, int64_t stop, int64_t num_edges) {
  if (start == stop) return true;
  bool good = indptr[start] >= 0 && indptr[stop] <= num_edges;
  for (int64_t row = start; row < stop; ++row) good &= indptr[row] <= indptr[row + 1];
  return good;
}

// The columns of edges first..end are in 0..num_columns - 1. Without a branch, for the compiler's vectors: the upper bit
// of a column is set if it is negative, that of the difference if it is too large.
inline bool columns_inside(const int32_t* indices, int64_t first, int64_t end, int64_t num_columns) {
  if (num_columns < 1) return first == end;
  const uint32_t last = static_cast<uint32_t>(num_columns < INT32_MAX ? num_columns - 1 : INT32_MAX);
  uint32_t bad = 0;
  for (int64_t e = first; e < end; ++e) {
    const uint32_t column = static_cast<uint32_t>(indices[e]);
    bad |= column | (last - column);
  }
  return !(bad >> 31);
}

}  // namespace siafu
