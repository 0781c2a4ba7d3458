// Attention for one instruction set: picks who adds a range's edges, merges the parts of hubs, and multiplies the two ends of
// edges.
#include "attention.hpp"
#include "attention_edges.hpp"

namespace siafu {
extern const AttentionEdges SIAFU_PASTE(attention_forward_float_, SIAFU_ISA), SIAFU_PASTE(attention_forward_bfloat16_, SIAFU_ISA),
    SIAFU_PASTE(attention_backward_float_, SIAFU_ISA), SIAFU_PASTE(attention_backward_bfloat16_, SIAFU_ISA);
}

namespace {

const siafu::AttentionEdges& adding(const Pass& p) {
  if (p.mode == BACKWARD)
    return p.bits16 ? siafu::SIAFU_PASTE(attention_backward_bfloat16_, SIAFU_ISA)
                    : siafu::SIAFU_PASTE(attention_backward_float_, SIAFU_ISA);
  return p.bits16 ? siafu::SIAFU_PASTE(attention_forward_bfloat16_, SIAFU_ISA)
                  : siafu::SIAFU_PASTE(attention_forward_float_, SIAFU_ISA);
}

void rows(const Pass& p, int64_t begin, int64_t end, float* scratch) { adding(p).rows(p, begin, end, scratch); }

void segment(const Pass& p, int64_t row, int64_t first, int64_t last, float* partial) {
  adding(p).segment(p, row, first, last, partial);
}

void finish_row(const Pass& p, int64_t row, const State& s, float* out, float* leaned) {
  p.mode == ATTEND ? finish<ATTEND>(p, row, s, out, leaned) : finish<BACKWARD>(p, row, s, out, leaned);
}

inline float exponential_of(float x) { return exponential(Four{x, x, x, x})[0]; }

// part into whole: both are partials of one row, part of later edges.
void merge_two(const Pass& p, float* whole, const float* part) {
  float ours[MAX_HEADS], theirs[MAX_HEADS];
  float *heads = whole + 2 * p.columns, *total = heads + siafu::MAX_HEADS, *leaned = total + siafu::MAX_HEADS;
  const float* other = part + 2 * p.columns;
  for (int h = 0; h < p.heads; ++h) {
    const float best = p.mode == ATTEND && other[h] > heads[h] ? other[h] : heads[h];
    ours[h] = p.mode == ATTEND ? exponential_of(heads[h] - best) : 1.0f;
    theirs[h] = p.mode == ATTEND ? exponential_of(other[h] - best) : 1.0f;
    heads[h] = best;
    total[h] = fused(ours[h], total[h], theirs[h] * other[siafu::MAX_HEADS + h]);
    leaned[h] = fused(ours[h], leaned[h], theirs[h] * other[2 * siafu::MAX_HEADS + h]);
  }
  for (int k = 0; k < 2; ++k)
    for (int j = 0; j < p.columns; ++j) {
      const int h = p.head_of[j];
      float& to = whole[k * p.columns + j];
      to = fused(ours[h], to, theirs[h] * part[k * p.columns + j]);
    }
}

// The parts of a hub, in their order, into the row.
void merge(const Pass& p, int64_t row, float* partials, int64_t count) {
  for (int64_t i = 1; i < count; ++i) merge_two(p, partials, partials + i * siafu::partial_floats(p));
  float *out = p.out + (row - p.start) * p.out_step, *leaned = partials + p.columns;
  for (int j = 0; j < p.columns; ++j) out[j] = partials[j];
  if (p.mode == ATTEND && p.leaned) {
    leaned = p.leaned + (row - p.start) * p.out_step;
    for (int j = 0; j < p.columns; ++j) leaned[j] = partials[p.columns + j];
  }
  const float* heads = partials + 2 * p.columns;
  State s = {};
  for (int h = 0; h < p.heads; ++h) {
    s.reference[h] = heads[h];
    s.total[h] = heads[siafu::MAX_HEADS + h];
    s.leaned[h] = heads[2 * siafu::MAX_HEADS + h];
  }
  finish_row(p, row, s, out, leaned);
}

// Of edges first..last of a row: products of its own row and their other ends', by head.
template <class E, class O>
void dots(const Pass& p, int64_t row, int64_t first, int64_t last) {
  const O* own = reinterpret_cast<const O*>(p.own_rows + row * p.own_row_bytes);
  float* out = p.out + (place_of(p, row) + p.add_self + first - p.indptr[row]) * p.out_step;
  Stream edges(p, first, last);
  const auto multiply = [&](int64_t column, const char* there, float* to) SIAFU_LAMBDA {
    const E* other = reinterpret_cast<const E*>(there);
    uint64_t bits = 0;
    const uint64_t counter = p.drop_below ? counter_of(p, row, column) : 0;
    for (int h = 0; h < p.heads; ++h) {
      to[h] = dot(own + h * p.width, other + h * p.width, p.width);
      if (!p.drop_below) continue;
      bits >>= 16;
      if (h % 4 == 0) draw(p, bits = counter, h / 4);
      to[h] = static_cast<int>(bits & 0xffff) >= p.drop_below ? to[h] * p.keep_scale : 0.0f;
    }
  };
  if (p.add_self && first == p.indptr[row]) multiply(row, row_of(p, row), out - p.out_step);
  for (int64_t e = first; e < last; ++e, out += p.out_step) {
    edges.fetch_until<ATTEND, 4>(p, e + 1 + p.ahead, p.drop_below);
    multiply(p.indices[e], edges.row[e & Stream::MASK], out);
  }
}

void edge_dot(const Pass& p, int64_t row, int64_t first, int64_t last) {
  const auto with = [&](auto own) {
    p.bits16 ? dots<Bfloat16, decltype(own)>(p, row, first, last) : dots<float, decltype(own)>(p, row, first, last);
  };
  p.own_bits16 ? with(Bfloat16{}) : with(0.0f);
}

void exp_all(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = exponential_of(x[i]);
}

void log_all(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = logarithm(splat(x[i]))[0];
}

}  // namespace

namespace siafu {
const AttentionTable SIAFU_PASTE(attention_rows_, SIAFU_ISA) = {
    VECTORS * W, ::MAX_HEADS, rows, segment, merge, edge_dot, exp_all, log_all};
}  // namespace siafu
