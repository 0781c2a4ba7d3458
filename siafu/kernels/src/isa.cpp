#include "isa.hpp"

#include "cpu.hpp"

namespace siafu {
namespace {

// As bits: 1 << Isa.
constexpr int built = 0
#ifdef SIAFU_HAS_SCALAR
                      | 1 << scalar
#endif
#ifdef SIAFU_HAS_NEON
                      | 1 << neon
#endif
#ifdef SIAFU_HAS_AVX2
                      | 1 << avx2
#endif
#ifdef SIAFU_HAS_AVX512
                      | 1 << avx512
#endif
#ifdef SIAFU_HAS_AVX512BF16
                      | 1 << avx512bf16
#endif
#ifdef SIAFU_HAS_AMX
                      | 1 << amx
#endif
    ;

// The best that the processor has.
Isa best() {
#if defined(__x86_64__)
  const Cpu found = cpu();
  if (found.amx) return amx;
  if (found.avx512bf16) return avx512bf16;
  if (found.avx512) return avx512;
  if (found.avx2) return avx2;
  return scalar;
#elif defined(__aarch64__)
  return neon;
#else
  return scalar;
#endif
}

// The best that was built and is no better than `isa`; the processor has none of those that were built: -1.
int at_most(int isa) {
  while (isa >= 0 && !(built >> isa & 1)) --isa;
  return isa;
}

int chosen = at_most(best());

}  // namespace

Isa isa() { return static_cast<Isa>(chosen); }

}  // namespace siafu

// What is in use; -1: the processor has none of those that were built, and no kernel may be called.
SIAFU_EXPORT int siafu_isa() { return siafu::chosen; }

// The instruction sets that were built, as bits 1 << Isa.
SIAFU_EXPORT int siafu_built() { return siafu::built; }

// For setup.py: what the processor has, whatever was built.
SIAFU_EXPORT int siafu_best() { return siafu::best(); }

// For tests and benchmarks: a lower instruction set than the best. Returns what is in use.
SIAFU_EXPORT int siafu_use_isa(int wanted) {
  const siafu::Isa best = siafu::best();
  const int found = siafu::at_most(wanted < best ? wanted : best);
  if (found >= 0) siafu::chosen = found;
  return siafu::chosen;
}

// Of which sources the library was made: setup.py's digest of this folder.
SIAFU_EXPORT const char* siafu_sources() { return SIAFU_SOURCES; }
