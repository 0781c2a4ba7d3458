// The loops of pack, compiled once per instruction set; the compiler makes vectors of them.
#include "bfloat16.hpp"
#include "pack.hpp"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace {

using siafu::bits_of;
using siafu::Pack;
using siafu::to_bfloat16;

inline uint16_t to_float16(float x) {
#if defined(__F16C__)
  return static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
#else
  const uint32_t bits = bits_of(x), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);    // nan
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);   // 65536 and above
  if (magnitude >= 0x38800000)  // a normal float16: another bias, and a carry may round it up to infinity
    return static_cast<uint16_t>(sign | ((magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13));
  float small;  // a unit in the last place of 0.5 is the smallest float16: the addition rounds
  __builtin_memcpy(&small, &magnitude, sizeof small);
  return static_cast<uint16_t>(sign | (bits_of(small + 0.5f) - 0x3f000000));
#endif
}

void bfloat16s(const float* from, float factor, int64_t count, char* to) {
  uint16_t* values = reinterpret_cast<uint16_t*>(to);
  for (int64_t i = 0; i < count; ++i) values[i] = to_bfloat16(from[i] * factor);
}

void float16s(const float* from, float factor, int64_t count, char* to) {
  uint16_t* values = reinterpret_cast<uint16_t*>(to);
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(from + i), _mm256_set1_ps(factor));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values + i), _mm256_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < count; ++i) values[i] = to_float16(from[i] * factor);
}

template <class Value>
void same(const Value* from, Value factor, int64_t count, char* to) {
  Value* values = reinterpret_cast<Value*>(to);
  for (int64_t i = 0; i < count; ++i) values[i] = from[i] * factor;
}

template <class Value>
void rows(const Pack& p, int64_t row, int64_t end, void (*convert)(const Value*, Value, int64_t, char*)) {
  for (; row < end; ++row) {
    const Value* from = static_cast<const Value*>(p.rows) + row * p.stride;
    const Value factor = p.scale ? static_cast<const Value*>(p.scale)[row] : Value(1);
    char* to = p.table + (p.place ? p.place[row] : p.first + row) * p.row_bytes;
    for (int64_t first = 0; first < p.width; first += p.tile, to += p.tile_bytes)
      convert(from + first, factor, p.width - first < p.tile ? p.width - first : p.tile, to);
  }
}

void pack(const Pack& p, int64_t row, int64_t end) {
  switch (p.type) {
    case siafu::float64: return rows<double>(p, row, end, same<double>);
    case siafu::bfloat16: return rows<float>(p, row, end, bfloat16s);
    case siafu::float16: return rows<float>(p, row, end, float16s);
    default: return rows<float>(p, row, end, same<float>);
  }
}

}  // namespace

namespace siafu {

extern const PackRows SIAFU_PASTE(pack_rows_, SIAFU_ISA) = {pack};

}  // namespace siafu
