// Elementwise passes of dense_rows.cpp: each reads its rows once.
#pragma once
#include "dense.hpp"
#include "exp.hpp"
#include "lanes.hpp"
#include "logarithm.hpp"

namespace siafu {
namespace {

// The rows of a chunk.
struct Chunk {
  int64_t from, to;

  Chunk(const Pass& p, int64_t chunk) {
    from = chunk * p.chunk;
    to = from + p.chunk < p.n ? from + p.chunk : p.n;
  }
};

inline float* row_of(float* rows, int64_t stride, int64_t row) { return (float*)((char*)rows + row * stride); }

// rows = max(rows, 0); NaN stays NaN, and -0 becomes 0.
void relu(const Pass& p, int64_t chunk) {
  const Chunk c(p, chunk);
  for (int64_t r = c.from; r < c.to; ++r) {
    float* row = row_of(p.rows, p.stride, r);
    for (int64_t i = 0; i < p.m; i += LANES) {
      const Floats x = load_part(row + i, p.m - i, 0.0f);
      store_part(row + i, p.m - i, x <= 0.0f ? Floats{} : x);
    }
  }
}

// out = rows where the other (H) is above 0, else 0.
void relu_backward(const Pass& p, int64_t chunk) {
  const Chunk c(p, chunk);
  for (int64_t r = c.from; r < c.to; ++r) {
    const float* row = row_of(p.rows, p.stride, r);
    float* out = row_of(p.out, p.out_stride, r);
    const char* other = p.other + r * p.other_stride;
    if (p.other_bits) {
      const int16_t* h = (const int16_t*)other;  // a bfloat16 is above 0 where these bits are, but for NaN
      for (int64_t i = 0; i < p.m; ++i) out[i] = h[i] > 0 && h[i] <= 0x7f80 ? row[i] : 0.0f;
    } else {
      const float* h = (const float*)other;
      for (int64_t i = 0; i < p.m; ++i) out[i] = h[i] > 0.0f ? row[i] : 0.0f;
    }
  }
}

// Of one row of logits: the loss, and the gradient in its place. The last sixteen values at most stay in registers from the
// first pass to the third: a load waits for what a store of part of a vector has written just before.
inline double cross_entropy_row(float* row, int64_t m, int64_t label, float scale) {
  if (label < 0 || label >= m) return __builtin_nan("");
  const int64_t whole = (m - 1) / WIDE * WIDE;
  Wide tail = Wide::load(row + whole, m - whole, -__builtin_inff()), most = tail;
  for (int64_t i = 0; i < whole; i += WIDE) {
    const Wide x = Wide::load(row + i, WIDE, 0.0f);
    for (int k = 0; k < Wide::PARTS; ++k) most.part[k] = x.part[k] > most.part[k] ? x.part[k] : most.part[k];
  }
  const float top = most.largest(), chosen = row[label] - top;
  Wide sums = {};
  for (int64_t i = 0; i < whole; i += WIDE) {
    Wide e = Wide::load(row + i, WIDE, 0.0f);
    for (int k = 0; k < Wide::PARTS; ++k) sums.part[k] += e.part[k] = exponential<Floats, Ints>(e.part[k] - top);
    e.store(row + i, WIDE);
  }
  for (int k = 0; k < Wide::PARTS; ++k) {
    const Ints inside = numbered() + k * LANES < static_cast<int32_t>(m - whole);
    const Floats x = inside ? tail.part[k] - top : Floats{};  // e^-inf is 0, but so small a number is slow to round
    sums.part[k] += tail.part[k] = inside ? exponential<Floats, Ints>(x) : Floats{};
  }
  const float sum = sums.total(), factor = scale / sum;
  for (int64_t i = 0; i < whole; i += WIDE) {
    Wide e = Wide::load(row + i, WIDE, 0.0f);
    for (int k = 0; k < Wide::PARTS; ++k) e.part[k] *= factor;
    e.store(row + i, WIDE);
  }
  for (int k = 0; k < Wide::PARTS; ++k) {
    const Ints at = numbered() + static_cast<int32_t>(whole + k * LANES);
    tail.part[k] = tail.part[k] * factor - (at == static_cast<int32_t>(label) ? Floats{} + scale : Floats{});
  }
  tail.store(row + whole, m - whole);
  if (label < whole) row[label] -= scale;
  return logarithm((double)sum) - (double)chosen;
}

// Softmax cross-entropy, and scale times its gradient in place; rows that do not count get gradient 0.
void cross_entropy(const Pass& p, int64_t chunk) {
  const Chunk c(p, chunk);
  const unsigned char* chosen = (const unsigned char*)p.other;
  double loss = 0;
  for (int64_t r = c.from; r < c.to; ++r) {
    float* row = row_of(p.rows, p.stride, r);
    if (!chosen || chosen[r])
      loss += cross_entropy_row(row, p.m, p.labels[r], p.scale);
    else
      __builtin_memset(row, 0, p.m * 4);
  }
  p.loss[chunk] = loss;
}

// out[chunk] = the sum of the chunk's rows: of four at a time, in order.
void column_sums(const Pass& p, int64_t chunk) {
  const Chunk c(p, chunk);
  float* out = row_of(p.out, p.out_stride, chunk);
  __builtin_memset(out, 0, p.m * 4);
  int64_t r = c.from;
  for (; r + 4 <= c.to; r += 4)
    for (int64_t i = 0; i < p.m; i += LANES) {
      Floats four[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const float* row = row_of(p.rows, p.stride, r + k) + i;
        four[k] = load_part(row, p.m - i, 0.0f);
        __builtin_prefetch((const char*)row + 16 * p.stride);  // or this pass waits for memory half of its time
      }
      store_part(out + i, p.m - i, load_part(out + i, p.m - i, 0.0f) + ((four[0] + four[1]) + (four[2] + four[3])));
    }
  for (; r < c.to; ++r) {
    const float* row = row_of(p.rows, p.stride, r);
    for (int64_t i = 0; i < p.m; ++i) out[i] += row[i];
  }
}

}  // namespace
}  // namespace siafu
