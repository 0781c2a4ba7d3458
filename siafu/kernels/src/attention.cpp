// Attention over the rows of a range: cuts the columns into passes and the edges into units of even size, and shares
// the units over threads. siafu/kernels/attention.py checks and calls.
#include "attention.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "csr.hpp"
#include "hash.hpp"
#include "threads.hpp"

namespace {

using siafu::HEADS_STEP;
using siafu::Pass;
using siafu::SOURCE_STEP;
using siafu::TARGET_STEP;

// A row with more edges is cut into parts of so many, which threads take like any other unit; the parts are merged in
// their order. The cut depends on the row alone, and with it the result.
constexpr int64_t SEGMENT = 4096;
constexpr int64_t UNITS_PER_THREAD = 16;
constexpr int LINE = 64;

// As attention.py's _Call has it.
struct Call {
  const int64_t* indptr;
  const int32_t* indices;
  const float *weight, *alpha;  // [m] of the graph, or null; null, or [edges of the range with add_self's, heads]
  const char* rows;
  const float* scores;
  const float* own;
  const char* own_rows;  // null: nobody wants ds
  float *out, *leaned, *total, *leaned_total;  // leaned: null if nobody wants it
  const int64_t* ids;                          // of dropout
  uint64_t key;
  int64_t start, stop, num_columns, num_edges;  // num_columns: of which there are rows
  int64_t row_bytes, score_bytes;  // from a row, or its scores, to the next
  int64_t score_step;              // floats from one of a row's scores to the next
  int32_t mode, heads, width, bits16, own_bits16, add_self, threads;  // bits16: the rows are bfloat16
  int32_t drop_below;  // of 65536
  float slope, keep_scale;
};

struct Unit {
  int64_t begin, end;    // rows; or edges of the row `hub`
  int64_t hub, partial;  // hub -1: rows
};

std::vector<Unit> cut(const Call& c) {
  std::vector<Unit> units;
  const int64_t edges = c.indptr[c.stop] - c.indptr[c.start];
  const int64_t target = std::max<int64_t>(edges / (std::max(c.threads, 1) * UNITS_PER_THREAD), 1024);
  int64_t begin = c.start, held = 0, partials = 0;
  const auto flush = [&](int64_t end) {
    if (end > begin) units.push_back({begin, end, -1, 0});
    begin = end, held = 0;
  };
  for (int64_t row = c.start; row < c.stop; ++row) {
    const int64_t first = c.indptr[row], last = c.indptr[row + 1];
    if (last - first > SEGMENT) {
      flush(row);
      for (int64_t e = first; e < last; e += SEGMENT)
        units.push_back({e, std::min(e + SEGMENT, last), row, partials++});
      begin = row + 1;
    } else if ((held += last - first + 4) >= target) {  // 4: a row costs something by itself
      flush(row + 1);
    }
  }
  flush(c.stop);
  return units;
}

struct Job {
  const siafu::AttentionTable* table;
  const Pass* pass;
  const std::vector<Unit>* units;
  float* partials;
  int64_t num_columns;
  std::atomic<bool>* wild;  // set: a column is none of theirs
};

// Whether the unit's edges lead to rows that are there; if not, it is told, and the unit is left out.
bool leads_to_rows(const Job& job, const Unit& unit) {
  const int64_t* indptr = job.pass->indptr;
  const int64_t first = unit.hub >= 0 ? unit.begin : indptr[unit.begin], end = unit.hub >= 0 ? unit.end : indptr[unit.end];
  if (siafu::columns_inside(job.pass->indices, first, end, job.num_columns)) return true;
  *job.wild = true;
  return false;
}

void work(const void* call, int64_t number) {
  const Job& job = *static_cast<const Job*>(call);
  const Unit& unit = (*job.units)[number];
  if (!leads_to_rows(job, unit)) return;
  if (unit.hub >= 0) {
    float* partial = job.partials + unit.partial * siafu::partial_floats(*job.pass);
    job.table->segment(*job.pass, unit.hub, unit.begin, unit.end, partial);
  } else {
    std::vector<float> scratch(job.pass->columns);
    job.table->rows(*job.pass, unit.begin, unit.end, scratch.data());
  }
}

void run(const Call& c, const Pass& pass, const std::vector<Unit>& units, std::vector<float>& partials,
         std::atomic<bool>& wild) {
  const siafu::AttentionTable& table = SIAFU_PICK(siafu::attention_rows_);
  int64_t count = 0;
  for (const Unit& unit : units) count += unit.hub >= 0;
  const int64_t stride = siafu::partial_floats(pass);
  partials.resize(std::max<int64_t>(partials.size(), count * stride));
  const Job job{&table, &pass, &units, partials.data(), c.num_columns, &wild};
  siafu::parallel(static_cast<int64_t>(units.size()), c.threads, work, &job);
  if (wild) return;
  for (size_t i = 0; i < units.size();) {
    size_t next = i + 1;
    while (next < units.size() && units[i].hub >= 0 && units[next].hub == units[i].hub) ++next;
    if (units[i].hub >= 0)
      table.merge(pass, units[i].hub, partials.data() + units[i].partial * stride, static_cast<int64_t>(next - i));
    i = next;
  }
}

int padded(int heads) {
  int p = 1;
  while (p < heads) p *= 2;
  return p;
}

// Where a pass that begins at column `first` ends: with a head if it can.
int pass_end(const Call& c, int first) {
  const siafu::AttentionTable& table = SIAFU_PICK(siafu::attention_rows_);
  const int all = c.heads * c.width;
  const int most = std::min({first + table.max_columns, (first / c.width + table.max_heads) * c.width, all});
  const int whole = most / c.width * c.width;
  return whole > first ? whole : most;
}

void set_dropout(const Call& c, int head, Pass& p) {
  const bool forward = c.mode == siafu::ATTEND;
  p.drop_below = c.drop_below, p.keep_scale = c.keep_scale, p.drop_shift = head % 4 * 16;
  p.key = c.key + static_cast<uint64_t>(head / 4) * HEADS_STEP, p.heads_step = HEADS_STEP;
  p.row_step = forward ? TARGET_STEP : SOURCE_STEP, p.column_step = forward ? SOURCE_STEP : TARGET_STEP;
  p.ids = c.ids;
}

// Columns [first, end) of the call.
Pass pass_of(const Call& c, int first, int end, std::vector<int32_t>& head_of) {
  const int columns = end - first, head = first / c.width, value_bytes = c.bits16 ? 2 : 4;
  head_of.assign(columns + siafu::PAD, 0);
  for (int j = 0; j < columns; ++j) head_of[j] = (first + j) / c.width - head;
  Pass p = {};
  p.start = c.start, p.indptr = c.indptr, p.indices = c.indices;
  p.weight = c.weight, p.alpha = c.alpha ? c.alpha + head : nullptr, p.alpha_step = c.heads;
  p.row_bytes = c.row_bytes, p.score_bytes = c.score_bytes, p.score_step = c.score_step;
  p.rows = c.rows + first * value_bytes;
  p.scores = reinterpret_cast<const char*>(c.scores + head);
  p.own = c.own ? c.own + head : nullptr;
  p.own_row_bytes = static_cast<int64_t>(c.heads) * c.width * (c.own_bits16 ? 2 : 4);
  p.own_rows = c.own_rows ? c.own_rows + first * (c.own_bits16 ? 2 : 4) : nullptr;
  p.bits16 = c.bits16, p.own_bits16 = c.own_bits16, p.mode = c.mode, p.add_self = c.add_self, p.slope = c.slope;
  p.heads = (end - 1) / c.width - head + 1;
  // Scores of one or two heads are those of several edges in a vector. In which order their totals are added up, and whether
  // every other edge has sums of its own, is for the call to say: how many heads a pass has follows from the registers.
  p.many_heads = c.heads > 2;
  p.padded_heads = p.many_heads ? padded(p.heads) : padded(c.heads);
  p.few = !p.many_heads && c.heads * c.width <= siafu::FEW_COLUMNS;
  p.columns = columns, p.width = c.width, p.cut = first - head * c.width, p.head_of = head_of.data();
  p.out = c.out + first, p.leaned = c.leaned ? c.leaned + first : nullptr, p.out_step = c.heads * c.width;
  p.total = c.total ? c.total + head : nullptr, p.total_step = c.heads;
  p.leaned_total = c.leaned_total ? c.leaned_total + head : nullptr;
  p.value_bytes = value_bytes;
  p.loose = (reinterpret_cast<intptr_t>(p.rows) | p.row_bytes) % LINE != 0 && columns * value_bytes > LINE / 2;
  p.far = c.num_columns * columns * value_bytes > siafu::FAR_BYTES;
  p.ahead = p.far ? 24 : columns * value_bytes > 4 * LINE ? 16 : 48;
  set_dropout(c, head, p);
  return p;
}

void dot_work(const void* call, int64_t number) {
  const Job& job = *static_cast<const Job*>(call);
  const Unit& unit = (*job.units)[number];
  if (!leads_to_rows(job, unit)) return;
  if (unit.hub >= 0) return job.table->edge_dot(*job.pass, unit.hub, unit.begin, unit.end);
  for (int64_t row = unit.begin; row < unit.end; ++row)
    job.table->edge_dot(*job.pass, row, job.pass->indptr[row], job.pass->indptr[row + 1]);
}

}  // namespace

// Passes one after the other: a head that two of them share is added up in their order. Not 0: the edges lead anywhere but
// to rows, and what was computed is of no use.
SIAFU_EXPORT int siafu_attention(const Call* call) {
  const Call& c = *call;
  if (!siafu::rows_rise(c.indptr, c.start, c.stop, c.num_edges)) return 1;
  std::atomic<bool> wild{false};
  const std::vector<Unit> units = cut(c);
  std::vector<float> partials;
  std::vector<int32_t> head_of;
  for (int first = 0, end; first < c.heads * c.width && !wild; first = end) {
    end = pass_end(c, first);
    run(c, pass_of(c, first, end, head_of), units, partials, wild);
  }
  return wild;
}

// out [edges of the range with add_self's, heads] = <own row, the row of the edge's other end> by head, if it is kept.
// Not 0: as of siafu_attention.
SIAFU_EXPORT int siafu_edge_dot(const Call* call) {
  const Call& c = *call;
  if (!siafu::rows_rise(c.indptr, c.start, c.stop, c.num_edges)) return 1;
  std::atomic<bool> wild{false};
  const std::vector<Unit> units = cut(c);
  std::vector<int32_t> head_of;
  Pass pass = pass_of(c, 0, c.heads * c.width, head_of);
  pass.out_step = c.heads;
  const Job job{&SIAFU_PICK(siafu::attention_rows_), &pass, &units, nullptr, c.num_columns, &wild};
  siafu::parallel(static_cast<int64_t>(units.size()), c.threads, dot_work, &job);
  return wild;
}

// For tests: e^x and ln x as the kernels compute them.
SIAFU_EXPORT void siafu_attention_exp(const float* x, float* y, int64_t n) {
  SIAFU_PICK(siafu::attention_rows_).exp(x, y, n);
}

SIAFU_EXPORT void siafu_attention_log(const float* x, float* y, int64_t n) {
  SIAFU_PICK(siafu::attention_rows_).log(x, y, n);
}
