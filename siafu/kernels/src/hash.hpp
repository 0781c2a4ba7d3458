// Random numbers that are a function of where they are used: siafu/ops.py says what they are, and has the same in numpy.
#pragma once
#include <cstdint>

namespace siafu {
namespace {

constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15u;
constexpr uint64_t SOURCE_STEP = 0xD1B54A32D192ED03u, TARGET_STEP = 0xABC98388FB8FAC03u, HEADS_STEP = 0x8CB92BA72F3D8DD7u;

// SplitMix64's finaliser.
inline uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Of a row's numbers; ``key``: of the call.
inline uint64_t row_key(int64_t row, uint64_t key) { return mixed(static_cast<uint64_t>(row) * GOLDEN + key); }

// 16 bits for each of N columns from ``first`` on: one hash serves four. Both are multiples of 4.
template <int64_t N>
inline void draws(uint64_t row_key, int64_t first, uint16_t* out) {
  uint64_t hash[N / 4];
  const uint64_t quad = static_cast<uint64_t>(first / 4);
  for (uint64_t i = 0; i < N / 4; ++i) hash[i] = mixed(row_key + (quad + i) * GOLDEN);
  __builtin_memcpy(out, hash, sizeof hash);
}

// The same 16 bits of ``count`` columns anywhere.
inline void draws_at(uint64_t row_key, const int32_t* columns, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t column = static_cast<uint32_t>(columns[i]);
    out[i] = static_cast<uint16_t>(mixed(row_key + (column >> 2) * GOLDEN) >> ((column & 3) * 16));
  }
}

}  // namespace
}  // namespace siafu
