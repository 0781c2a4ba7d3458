#include "isa.hpp"

namespace siafu {
namespace {

Isa best() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512cd");
  if (wide && __builtin_cpu_supports("avx512bf16")) return avx512bf16;
  if (wide) return avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return avx2;
  return scalar;
#elif defined(__aarch64__)
  return neon;
#else
  return scalar;
#endif
}

Isa chosen = best();

}  // namespace

Isa isa() { return chosen; }

}  // namespace siafu

SIAFU_EXPORT int siafu_isa() { return siafu::chosen; }

// For tests and benchmarks: a lower instruction set than the best. Returns what is in use.
SIAFU_EXPORT int siafu_use_isa(int wanted) {
#if defined(__x86_64__)
  const siafu::Isa best = siafu::best();
  if (wanted != siafu::neon && wanted >= 0) siafu::chosen = wanted < best ? static_cast<siafu::Isa>(wanted) : best;
#endif
  return siafu::chosen;
}

// Of which sources the library was made: setup.py's digest of this folder.
SIAFU_EXPORT const char* siafu_sources() { return SIAFU_SOURCES; }
