// The loops of quantise, compiled once per instruction set. No product is followed by a sum that could be fused with it but
// one that is exact, so that all of them make the same bytes.
#include "quantise.hpp"

#include <cstddef>

#include "bfloat16.hpp"
#include "hash.hpp"
#include "lanes.hpp"

namespace {

using siafu::draws;
using siafu::Floats;
using siafu::Ints;
using siafu::bits_of;
using siafu::from_bfloat16;
using siafu::LANES;
using siafu::Quantise;

constexpr float LIMIT = 0x1p125f, LEAST_STEP = 0x1p-100f, UNIT = 0x1p17f;

// The largest that is not above x; 0 without a sign.
inline uint16_t bfloat16_below(float x) {
  const uint32_t bits = bits_of(x), below = (bits >> 16) + (bits >> 31 && bits & 0xffff);
  return static_cast<uint16_t>(below == 0x8000 ? 0 : below);
}

// The smallest that is not below x >= 0.
inline uint16_t bfloat16_above(float x) { return static_cast<uint16_t>((bits_of(x) + 0xffff) >> 16); }

// Whether all of them may be sent; then their least and their greatest.
bool range(const float* row, int64_t width, float* low, float* high) {
  Floats least = Floats{} + row[0], most = least;
  Ints good = Ints{} - 1;
  for (int64_t i = 0; i < width; i += LANES) {
    const Floats x = siafu::load_part(row + i, width - i, row[0]);
    least = x < least ? x : least;
    most = x > most ? x : most;
    good &= (x >= Floats{} - LIMIT) & (x <= Floats{} + LIMIT);
  }
  *low = least[0], *high = most[0];
  int32_t all = good[0];
  for (int i = 1; i < LANES; ++i) {
    *low = least[i] < *low ? least[i] : *low;
    *high = most[i] > *high ? most[i] : *high;
    all &= good[i];
  }
  return all != 0;
}

// N values at a time: whole hashes, and whole bytes of codes.
constexpr int64_t LONG = 64, SHORT = 16;

// N codes into N * bits / 8 bytes.
template <int64_t N>
inline void pack(const uint8_t* code, int32_t bits, uint8_t* out) {
  if (bits == 8) {
    __builtin_memcpy(out, code, N);
  } else if (bits == 4) {
    uint16_t pair[N / 2];
    __builtin_memcpy(pair, code, N);
    for (int64_t i = 0; i < N / 2; ++i) out[i] = static_cast<uint8_t>(pair[i] | pair[i] >> 4);
  } else {
    uint32_t four[N / 4];
    __builtin_memcpy(four, code, N);
    for (int64_t i = 0; i < N / 4; ++i)
      out[i] = static_cast<uint8_t>(four[i] | four[i] >> 6 | four[i] >> 12 | four[i] >> 18);
  }
}

template <int64_t N>
inline void unpack(const uint8_t* in, int32_t bits, uint8_t* code) {
  if (bits == 8) {
    __builtin_memcpy(code, in, N);
  } else if (bits == 4) {
    uint16_t pair[N / 2];
    for (int64_t i = 0; i < N / 2; ++i) pair[i] = static_cast<uint16_t>((in[i] | in[i] << 4) & 0x0f0f);
    __builtin_memcpy(code, pair, N);
  } else {
    uint32_t four[N / 4];
    for (int64_t i = 0; i < N / 4; ++i) {
      const uint32_t x = in[i];
      four[i] = (x | x << 6 | x << 12 | x << 18) & 0x03030303;
    }
    __builtin_memcpy(code, four, N);
  }
}

struct Grid {
  float Z, S, inverse;  // UNIT / S; 0 where S is
  int32_t bits, most;
  uint64_t row_key;
};

template <int64_t N>
inline void quantise_block(const float* from, int64_t first, const Grid& grid, uint8_t* to) {
  uint16_t random[N];
  uint8_t code[N];
  draws<N>(grid.row_key, first, random);
  for (int64_t i = 0; i < N; ++i) {
    const int32_t fixed = static_cast<int32_t>((from[i] - grid.Z) * grid.inverse);
    const int32_t rounded = (fixed + (2 * random[i] + 1)) >> 17;
    code[i] = static_cast<uint8_t>(rounded < grid.most ? rounded : grid.most);
  }
  pack<N>(code, grid.bits, to);
}

template <int64_t N>
inline void dequantise_block(const uint8_t* from, const Grid& grid, float* to) {
  uint8_t code[N];
  unpack<N>(from, grid.bits, code);
  for (int64_t i = 0; i < N; ++i) to[i] = grid.Z + grid.S * static_cast<float>(code[i]);  // 8 bits times 8: exact
}

inline size_t nbytes(int64_t values, int32_t bits) { return static_cast<size_t>((values * bits + 7) / 8); }

bool quantise_row(const Quantise& q, int64_t row) {
  const float* from = q.rows + q.index[row] * q.width;
  uint8_t* to = q.codes + row * q.row_codes;
  uint16_t* parameters = q.parameters + 2 * row;
  float low, high;
  if (!range(from, q.width, &low, &high)) return false;
  Grid grid;
  grid.bits = q.bits, grid.most = (1 << q.bits) - 1;
  parameters[0] = bfloat16_below(low);
  grid.Z = from_bfloat16(parameters[0]);
  const float span = high - grid.Z, step = span / static_cast<float>(grid.most);
  parameters[1] = span > 0 ? bfloat16_above(step > LEAST_STEP ? step : LEAST_STEP) : 0;
  grid.S = from_bfloat16(parameters[1]);
  grid.inverse = grid.S > 0 ? UNIT / grid.S : 0;
  grid.row_key = siafu::row_key(q.index[row], q.key);
  int64_t i = 0;
  for (; i + LONG <= q.width; i += LONG) quantise_block<LONG>(from + i, i, grid, to + i * q.bits / 8);
  for (; i + SHORT <= q.width; i += SHORT) quantise_block<SHORT>(from + i, i, grid, to + i * q.bits / 8);
  if (i == q.width) return true;
  float rest[SHORT];
  uint8_t last[SHORT];
  for (int64_t j = 0; j < SHORT; ++j) rest[j] = i + j < q.width ? from[i + j] : grid.Z;  // of which the codes are 0
  quantise_block<SHORT>(rest, i, grid, last);
  __builtin_memcpy(to + i * q.bits / 8, last, nbytes(q.width - i, q.bits));
  return true;
}

void dequantise_row(const Quantise& q, int64_t row) {
  float* to = q.rows + q.index[row] * q.width;
  const uint8_t* from = q.codes + row * q.row_codes;
  Grid grid;
  grid.bits = q.bits;
  grid.Z = from_bfloat16(q.parameters[2 * row]), grid.S = from_bfloat16(q.parameters[2 * row + 1]);
  int64_t i = 0;
  for (; i + LONG <= q.width; i += LONG) dequantise_block<LONG>(from + i * q.bits / 8, grid, to + i);
  for (; i + SHORT <= q.width; i += SHORT) dequantise_block<SHORT>(from + i * q.bits / 8, grid, to + i);
  if (i == q.width) return;
  uint8_t last[SHORT] = {};
  float rest[SHORT];
  __builtin_memcpy(last, from + i * q.bits / 8, nbytes(q.width - i, q.bits));
  dequantise_block<SHORT>(last, grid, rest);
  for (int64_t j = 0; i + j < q.width; ++j) to[i + j] = rest[j];
}

bool quantise(const Quantise& q, int64_t row, int64_t end) {
  bool good = true;
  for (; row < end; ++row) good &= quantise_row(q, row);
  return good;
}

void dequantise(const Quantise& q, int64_t row, int64_t end) {
  for (; row < end; ++row) dequantise_row(q, row);
}

}  // namespace

namespace siafu {

extern const QuantiseRows SIAFU_PASTE(quantise_rows_, SIAFU_ISA) = {quantise, dequantise};

}  // namespace siafu
