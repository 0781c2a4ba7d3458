// Attention over the edges of a row range: what attention.cpp asks of attention_rows.cpp, which is built once per
// instruction set.
#pragma once
#include <cstdint>

#include "isa.hpp"

namespace siafu {

enum Mode { ATTEND = 0, BACKWARD = 1 };

constexpr int MAX_HEADS = 16;    // of one pass, over all instruction sets
constexpr int PAD = 16;          // entries that may be read behind head_of
constexpr int FEW_COLUMNS = 16;  // of a call: they fit one vector of the widest instruction set

// What rows are computed from, for the columns of one pass: as many as are summed in registers, of some heads, which a
// pass may cut. Addresses are of its first column.
struct Pass {
  int64_t start;
  const int64_t* indptr;
  const int32_t* indices;
  const float* weight;  // [m] of the graph, or null
  const float* alpha;   // null, or signed coefficients from this pass's first head on [edges of the range, alpha_step]
  int64_t alpha_step;   // with add_self, each row of them begins with its own
  const char* rows;    // [N, columns], float or bfloat16
  const char* scores;  // ATTEND: s; BACKWARD: t, log_total, delta, score_step floats apart
  int64_t row_bytes, score_bytes, score_step;
  const float* own;      // [n, total_step]: t, or s backwards, from this pass's first head
  const char* own_rows;  // BACKWARD, edge_dot: T [n, all columns]; null: no ds is made
  int64_t own_row_bytes;
  int bits16, own_bits16;
  int mode, heads, padded_heads, columns, width, add_self;
  int few, many_heads;  // whether the call has FEW_COLUMNS or fewer, of one or two heads; whether it has more heads than two
  int ahead, far;          // edges to fetch ahead; whether into the second-level cache
  int loose, value_bytes;  // whether rows begin anywhere in a cache line; of a column
  int cut;                        // columns of the first head that earlier passes had
  const int32_t* head_of;         // [columns + PAD]
  float slope;
  float *out, *leaned;          // [stop - start, out_step]; leaned: null, or ATTEND's
  float *total, *leaned_total;  // [stop - start, total_step]; leaned_total: null, or ATTEND's, or BACKWARD's ds
  int64_t out_step, total_step;
  // Dropout, of the two ends' global ids [N]; of a row's id, and of a column's, times their steps.
  int drop_below;  // of 65536; 0: without dropout
  int drop_shift;  // bits of the first hash that belong to heads of earlier passes
  float keep_scale;
  uint64_t key, row_step, column_step, heads_step;  // key: with the first head's part
  const int64_t* ids;
};

// What a part of a hub's edges left: two rows of columns, then three of MAX_HEADS.
inline int64_t partial_floats(const Pass& p) { return 2 * static_cast<int64_t>(p.columns) + 3 * MAX_HEADS; }

// Who adds the edges of rows, or of a part of a hub: of one mode and one kind of rows.
struct AttentionEdges {
  void (*rows)(const Pass&, int64_t begin, int64_t end, float* scratch);  // scratch [columns]
  void (*segment)(const Pass&, int64_t row, int64_t first, int64_t last, float* partial);
};

struct AttentionTable {
  int max_columns, max_heads;  // of one pass
  void (*rows)(const Pass&, int64_t begin, int64_t end, float* scratch);  // scratch [columns]
  void (*segment)(const Pass&, int64_t row, int64_t first, int64_t last, float* partial);
  void (*merge)(const Pass&, int64_t row, float* partials, int64_t count);
  void (*edge_dot)(const Pass&, int64_t row, int64_t first, int64_t last);
  void (*exp)(const float* x, float* y, int64_t n);
  void (*log)(const float* x, float* y, int64_t n);
};

SIAFU_DECLARE(AttentionTable, attention_rows_)

}  // namespace siafu
