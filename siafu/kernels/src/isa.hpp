// Which instruction set the kernels use: the best that both the build (SIAFU_HAS_<ISA>, given by setup.py) and the processor
// have.
#pragma once

#define SIAFU_EXPORT extern "C" __attribute__((visibility("default")))

namespace siafu {

enum Isa { scalar = 0, neon = 1, avx2 = 2, avx512 = 3, avx512bf16 = 4, amx = 5 };

Isa isa();

}  // namespace siafu

// A per-ISA source defines `table_<isa>`: PASTE(table_, SIAFU_ISA). The common part picks one with SIAFU_PICK. With
// AVX512_BF16 and AMX, only products of bfloat16 differ from AVX-512's (dense.cpp).
#define SIAFU_PASTE2(a, b) a##b
#define SIAFU_PASTE(a, b) SIAFU_PASTE2(a, b)

// What has AMX has AVX512_BF16, and packs with it.
#if SIAFU_AMX
#define SIAFU_AVX512BF16 1
#endif

#if defined(__x86_64__)
#define SIAFU_DECLARE(type, name) extern const type name##scalar, name##avx2, name##avx512;
// What was not compiled is not named: no object defines it.
#ifdef SIAFU_HAS_SCALAR
#define SIAFU_LEAST(name) name##scalar
#elif defined(SIAFU_HAS_AVX2)
#define SIAFU_LEAST(name) name##avx2
#else
#define SIAFU_LEAST(name) name##avx512
#endif
#ifdef SIAFU_HAS_AVX2
#define SIAFU_AVX2_OR(name, other) (::siafu::isa() == ::siafu::avx2 ? name##avx2 : other)
#else
#define SIAFU_AVX2_OR(name, other) other
#endif
#ifdef SIAFU_HAS_AVX512
#define SIAFU_AVX512_OR(name, other) (::siafu::isa() >= ::siafu::avx512 ? name##avx512 : other)
#else
#define SIAFU_AVX512_OR(name, other) other
#endif
#define SIAFU_PICK(name) SIAFU_AVX512_OR(name, SIAFU_AVX2_OR(name, SIAFU_LEAST(name)))
#elif defined(__aarch64__)
#define SIAFU_DECLARE(type, name) extern const type name##neon;
#define SIAFU_PICK(name) (name##neon)
#else
#define SIAFU_DECLARE(type, name) extern const type name##scalar;
#define SIAFU_PICK(name) (name##scalar)
#endif
