#include "pairs.hpp"

#include "csr.hpp"
#include "threads.hpp"

namespace {

constexpr int64_t CHUNK_EDGES = 1 << 11;

}  // namespace

// 0, or 1 if row pointers fall or lead beyond the edges, or an edge to no row.
SIAFU_EXPORT int siafu_pairs(const siafu::PairRows* call) {
  if (!siafu::rows_rise(call->indptr, 0, call->n, call->m)) return 1;
  if (call->index ? !siafu::columns_inside(call->index, 0, call->m, call->k) : call->m > call->k) return 1;
  const int64_t rows = CHUNK_EDGES * call->n / (call->m + 1) + 1;
  siafu::parallel_rows(call->n, rows, call->threads, [call](int64_t row, int64_t end) {
    (SIAFU_PICK(siafu::pairs_rows_)).rows(*call, row, end);
  });
  return 0;
}

// As above.
SIAFU_EXPORT int siafu_draw_pairs(const siafu::PairDraw* call) {
  if (!siafu::rows_rise(call->indptr, 0, call->n, call->m)) return 1;
  if (!siafu::columns_inside(call->columns, 0, call->m, call->num_ids)) return 1;
  (SIAFU_PICK(siafu::pairs_rows_)).draw(*call);
  return 0;
}
