// What an x86 processor has, and its system lets programs use, by the processor's own words (Intel's manual, volume 2, CPUID).
// __builtin_cpu_supports asks the compiler's run-time library instead, and zig's (infra/kernels.py) knows of nothing.
#pragma once

#if defined(__x86_64__)

#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace siafu {

struct Cpu {
  bool clmul = false, wide_clmul = false, avx2 = false, avx512 = false, avx512bf16 = false, amx = false;
};

// Linux saves the tile registers (8 KB) of processes alone that ask for them (Documentation/arch/x86/xstate.rst).
inline bool tiles_allowed() {
#ifdef __linux__
  constexpr long REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18;
  return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
  return false;
#endif
}

inline Cpu cpu() {
  const auto has = [](unsigned word, auto... bits) { return ((word >> bits & 1) && ...); };
  Cpu found;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
  found.clmul = has(c, 1, 19);  // PCLMULQDQ, SSE4.1
  if (!has(c, 12, 27, 29) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;  // FMA, OSXSAVE, F16C
  unsigned saved, high;  // registers that the system keeps for each thread: XCR0
  __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  found.avx2 = has(saved, 1, 2) && has(b, 5, 8);  // AVX2, BMI2
  found.avx512 = has(saved, 1, 2, 5, 6, 7) && has(b, 16, 17, 28, 30, 31);  // F, DQ, CD, BW, VL
  found.wide_clmul = found.avx512 && found.clmul && has(c, 10);  // VPCLMULQDQ
  const bool tiles = has(saved, 17, 18) && has(d, 22, 24);  // AMX_BF16, AMX_TILE
  found.avx512bf16 = found.avx512 && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && has(a, 5);  // AVX512_BF16
  found.amx = found.avx512bf16 && tiles && tiles_allowed();
  return found;
}

}  // namespace siafu

#endif
