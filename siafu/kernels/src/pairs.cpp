#include "pairs.hpp"

#include <algorithm>
#include <cstring>

#include "csr.hpp"
#include "threads.hpp"

namespace {

constexpr int64_t CHUNK_EDGES = 1 << 11, CHUNK_DRAWN = 1 << 15;

// Rows that have about so many edges.
int64_t rows_of(int64_t edges, int64_t n, int64_t m) { return edges * n / (m + 1) + 1; }

}  // namespace

// 0, or 1 if row pointers fall or lead beyond the edges, or an edge to no row.
SIAFU_EXPORT int siafu_pairs(const siafu::PairRows* call) {
  if (!siafu::rows_rise(call->indptr, 0, call->n, call->m)) return 1;
  if (call->index ? !siafu::columns_inside(call->index, 0, call->m, call->k) : call->m > call->k) return 1;
  siafu::parallel_rows(call->n, rows_of(CHUNK_EDGES, call->n, call->m), call->threads, [call](int64_t row, int64_t end) {
    (SIAFU_PICK(siafu::pairs_rows_)).rows(*call, row, end);
  });
  return 0;
}

// As above.
SIAFU_EXPORT int siafu_draw_pairs(const siafu::PairDraw* call) {
  if (!siafu::rows_rise(call->indptr, 0, call->n, call->m)) return 1;
  if (!siafu::columns_inside(call->columns, 0, call->m, call->num_ids)) return 1;
  const int64_t rows = rows_of(CHUNK_DRAWN, call->n, call->m);
  siafu::parallel_rows(call->n, rows, call->threads, [call](int64_t row, int64_t end) {
    (SIAFU_PICK(siafu::pairs_rows_)).draw(*call, row, end);
  });
  int64_t drawn = call->out_indptr[0] = 0;
  for (int64_t row = 0; row < call->n; row += rows) {  // each chunk's onto the end of the one before it
    const int64_t from = call->indptr[row], to = drawn;
    for (int64_t r = row; r < std::min(row + rows, call->n); ++r) call->out_indptr[r + 1] = drawn += call->out_indptr[r + 1];
    std::memmove(call->out_columns + to, call->out_columns + from, (drawn - to) * sizeof(int32_t));
    std::memmove(call->out_true + to, call->out_true + from, drawn - to);
  }
  return 0;
}
