// CRC-32 as zlib computes it (IEEE 802.3, reflected), by carry-less multiplication: the checksum of every tensor that
// travels. zlib's own, by tables, is slower than the network that it guards.
//
// A message is a polynomial over GF(2); its CRC is its remainder modulo P. A block of 128 bits that stands n bits before
// another may be folded into it: (high x^64 + low) x^n = high (x^(n+64) mod P) + low (x^n mod P), two carry-less products
// of 64 bits. Four blocks are folded in parallel over a distance of 512 bits, then into one; the last 16 bytes and the tail
// go through a table. (Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", Intel 2009.)
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu.hpp"
#include "isa.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#define SIAFU_CLMUL __attribute__((target("pclmul,sse4.1")))
#define SIAFU_WIDE __attribute__((target("pclmul,sse4.1,vpclmulqdq,avx512f")))
#endif

namespace siafu {
namespace {

constexpr uint32_t reflected = 0xedb88320u;  // P without x^32, its bits in reverse order

struct Table {
  uint32_t of[256];
  constexpr Table() : of{} {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? reflected : 0);
      of[byte] = crc;
    }
  }
};

constexpr Table table;

uint32_t by_table(uint32_t crc, const uint8_t* data, int64_t size) {
  for (int64_t i = 0; i < size; ++i) crc = (crc >> 8) ^ table.of[(crc ^ data[i]) & 0xff];
  return crc;
}

#if defined(__x86_64__)

// x^n mod P, bits reversed, one bit further up: a product of two reversed numbers is one bit short.
constexpr uint64_t power(int n) {
  uint32_t crc = 0x80000000u;  // 1
  for (int i = 0; i < n; ++i) crc = (crc >> 1) ^ (crc & 1 ? reflected : 0);
  return static_cast<uint64_t>(crc) << 1;
}

// Of the high and the low half of a block that is folded over a distance in bits. In a reversed block the low half comes
// first: it is further from what it is folded into.
template <int distance>
struct Over {
  static constexpr uint64_t low = power(distance + 32), high = power(distance - 32);
};

SIAFU_CLMUL inline __m128i folded(__m128i block, __m128i next, __m128i powers) {
  const __m128i low = _mm_clmulepi64_si128(block, powers, 0x00);
  const __m128i high = _mm_clmulepi64_si128(block, powers, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

SIAFU_CLMUL inline __m128i load(const uint8_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }

// Four blocks, one behind the other, and what follows them: into one, then into a number.
SIAFU_CLMUL uint32_t finished(__m128i a, __m128i b, __m128i c, __m128i d, const uint8_t* data, int64_t size) {
  const __m128i over_128 = _mm_set_epi64x(Over<128>::high, Over<128>::low);
  a = folded(folded(folded(a, b, over_128), c, over_128), d, over_128);
  for (; size >= 16; data += 16, size -= 16) a = folded(a, load(data), over_128);
  uint8_t last[16];
  std::memcpy(last, &a, 16);
  return by_table(by_table(0, last, 16), data, size);
}

SIAFU_CLMUL uint32_t by_blocks(uint32_t crc, const uint8_t* data, int64_t size) {
  const __m128i over_512 = _mm_set_epi64x(Over<512>::high, Over<512>::low);
  __m128i a = _mm_xor_si128(load(data), _mm_cvtsi32_si128(static_cast<int>(crc)));
  __m128i b = load(data + 16), c = load(data + 32), d = load(data + 48);
  for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
    a = folded(a, load(data), over_512);
    b = folded(b, load(data + 16), over_512);
    c = folded(c, load(data + 32), over_512);
    d = folded(d, load(data + 48), over_512);
  }
  return finished(a, b, c, d, data, size);
}

SIAFU_WIDE inline __m512i folded(__m512i blocks, __m512i next, __m512i powers) {
  const __m512i low = _mm512_clmulepi64_epi128(blocks, powers, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(blocks, powers, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // xor of the three
}

template <int distance>
SIAFU_WIDE inline __m512i over() {
  const int64_t high = Over<distance>::high, low = Over<distance>::low;
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

// The same with four blocks in a register, and four registers.
SIAFU_WIDE uint32_t by_wide_blocks(uint32_t crc, const uint8_t* data, int64_t size) {
  const __m512i over_2048 = over<2048>(), over_512 = over<512>();
  __m512i x[4];
  for (int i = 0; i < 4; ++i) x[i] = _mm512_loadu_si512(data + 64 * i);
  x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  for (data += 256, size -= 256; size >= 256; data += 256, size -= 256)
    for (int i = 0; i < 4; ++i) x[i] = folded(x[i], _mm512_loadu_si512(data + 64 * i), over_2048);
  __m512i all = folded(folded(folded(x[0], x[1], over_512), x[2], over_512), x[3], over_512);
  for (; size >= 64; data += 64, size -= 64) all = folded(all, _mm512_loadu_si512(data), over_512);
  uint8_t blocks[64];
  _mm512_storeu_si512(blocks, all);
  return finished(load(blocks), load(blocks + 16), load(blocks + 32), load(blocks + 48), data, size);
}

#endif

}  // namespace
}  // namespace siafu

// Whether siafu_crc32 is faster than zlib's here.
SIAFU_EXPORT int siafu_has_crc32() {
#if defined(__x86_64__)
  return siafu::cpu().clmul;
#else
  return 0;
#endif
}

// The CRC-32 of `size` bytes behind others whose CRC-32 is `before` (0: of none); equal to zlib's.
SIAFU_EXPORT uint32_t siafu_crc32(uint32_t before, const uint8_t* data, int64_t size) {
  const uint32_t start = ~before;
#if defined(__x86_64__)
  static const siafu::Cpu cpu = siafu::cpu();
  if (cpu.wide_clmul && size >= 256) return ~siafu::by_wide_blocks(start, data, size);
  if (cpu.clmul && size >= 64) return ~siafu::by_blocks(start, data, size);
#endif
  return ~siafu::by_table(start, data, size);
}
