// The loop of dropout, compiled once per instruction set: all of them drop the same entries.
#include "bfloat16.hpp"
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

inline float scaled(float factor, float value) { return factor * value; }

inline uint16_t scaled(float factor, uint16_t value) {
  return siafu::to_bfloat16(factor * siafu::from_bfloat16(value));
}

// T: float, or uint16_t of bfloat16.
template <int64_t N, class T>
inline void block(const Dropout& d, uint64_t row_key, int64_t first, const T* from, T* to) {
  float factor[N];
  factors<N>(d, row_key, first, factor);
  for (int64_t i = 0; i < N; ++i) to[i] = scaled(factor[i], from[i]);
}

template <class T>
void row(const Dropout& d, int64_t number) {
  const uint64_t key = siafu::row_key(d.vertices[number], d.key);
  const T* from = reinterpret_cast<const T*>(d.rows + number * d.stride);
  T* to = reinterpret_cast<T*>(d.out) + number * d.m;
  int64_t i = 0;
  for (; i + LONG <= d.m; i += LONG) block<LONG>(d, key, i, from + i, to + i);
  for (; i + SHORT <= d.m; i += SHORT) block<SHORT>(d, key, i, from + i, to + i);
  if (i == d.m) return;
  float rest[SHORT];
  factors<SHORT>(d, key, i, rest);
  for (int64_t j = 0; i + j < d.m; ++j) to[i + j] = scaled(rest[j], from[i + j]);
}

void row_of_ones(const Dropout& d, int64_t number) {
  const uint64_t key = siafu::row_key(d.vertices[number], d.key);
  float* to = reinterpret_cast<float*>(d.out) + number * d.m;
  for (int64_t i = 0; i < d.m; i += SHORT) {
    float factor[SHORT];
    factors<SHORT>(d, key, i, factor);
    for (int64_t j = 0; j < SHORT && i + j < d.m; ++j) to[i + j] = factor[j];
  }
}

void dropped(const Dropout& d, int64_t number, int64_t end) {
  for (; number < end; ++number) d.rows ? d.bits ? row<uint16_t>(d, number) : row<float>(d, number) : row_of_ones(d, number);
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
