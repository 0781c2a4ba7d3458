// The loop of dropout, compiled once per instruction set: all of them drop the same entries.
#include "dropout.hpp"

#include "hash.hpp"

namespace {

using siafu::Dropout;

constexpr int64_t LONG = 64, SHORT = 16;  // columns at a time

// Bits, not a choice: a mask is what no processor guesses.
template <int64_t N>
inline void factors(const Dropout& d, uint64_t row_key, int64_t first, float* to) {
  uint16_t random[N];
  int32_t bits[N], scale;
  __builtin_memcpy(&scale, &d.scale, sizeof scale);
  siafu::draws<N>(row_key, first, random);
  for (int64_t i = 0; i < N; ++i) bits[i] = scale & -static_cast<int32_t>(random[i] >= d.threshold);
  __builtin_memcpy(to, bits, sizeof bits);
}

template <int64_t N>
inline void block(const Dropout& d, uint64_t row_key, int64_t first, const float* from, float* to) {
  float factor[N];
  factors<N>(d, row_key, first, factor);
  for (int64_t i = 0; i < N; ++i) to[i] = factor[i] * (from ? from[i] : 1.0f);
}

void row(const Dropout& d, int64_t number) {
  const uint64_t key = siafu::row_key(d.vertices[number], d.key);
  const float* from = d.rows ? d.rows + number * d.stride : nullptr;
  float* to = d.out + number * d.m;
  int64_t i = 0;
  for (; i + LONG <= d.m; i += LONG) block<LONG>(d, key, i, from ? from + i : nullptr, to + i);
  for (; i + SHORT <= d.m; i += SHORT) block<SHORT>(d, key, i, from ? from + i : nullptr, to + i);
  if (i == d.m) return;
  float rest[SHORT];
  factors<SHORT>(d, key, i, rest);
  for (int64_t j = 0; i + j < d.m; ++j) to[i + j] = rest[j] * (from ? from[i + j] : 1.0f);
}

void dropped(const Dropout& d, int64_t number, int64_t end) {
  for (; number < end; ++number) row(d, number);
}

// Where an entry goes depends on how many before it are kept: one thread. Each is written, and the next one over it if it
// is not kept: again no choice.
void sparse(const siafu::SparseDropout& d) {
  int64_t kept = d.out_indptr[0] = 0;
  for (int64_t number = 0; number < d.n; ++number) {
    const uint64_t key = siafu::row_key(d.vertices[number], d.key);
    for (int64_t first = d.indptr[number]; first < d.indptr[number + 1]; first += LONG) {
      const int64_t left = d.indptr[number + 1] - first, count = left < LONG ? left : LONG;
      uint16_t random[LONG];
      siafu::draws_at(key, d.indices + first, count, random);
      for (int64_t i = 0; i < count; ++i) {
        d.out_indices[kept] = d.indices[first + i];
        d.out_data[kept] = d.data[first + i] * d.scale;
        kept += random[i] >= d.threshold;
      }
    }
    d.out_indptr[number + 1] = kept;
  }
}

}  // namespace

namespace siafu {

extern const DropoutRows SIAFU_PASTE(dropout_rows_, SIAFU_ISA) = {dropped, sparse};

}  // namespace siafu
