// Which instruction set the kernels use: the best that both the build and the processor have.
#pragma once

#define SIAFU_EXPORT extern "C" __attribute__((visibility("default")))

namespace siafu {

enum Isa { scalar = 0, neon = 1, avx2 = 2, avx512 = 3, avx512bf16 = 4 };

Isa isa();

}  // namespace siafu

// A per-ISA source defines `table_<isa>`: PASTE(table_, SIAFU_ISA). The common part picks one with SIAFU_PICK.
#define SIAFU_PASTE2(a, b) a##b
#define SIAFU_PASTE(a, b) SIAFU_PASTE2(a, b)

#if defined(__x86_64__)
#define SIAFU_DECLARE(type, name) extern const type name##scalar, name##avx2, name##avx512, name##avx512bf16;
#define SIAFU_PICK(name)                                                                                        \
  (::siafu::isa() == ::siafu::avx512bf16 ? name##avx512bf16                                                     \
   : ::siafu::isa() == ::siafu::avx512   ? name##avx512                                                         \
   : ::siafu::isa() == ::siafu::avx2     ? name##avx2                                                           \
                                         : name##scalar)
#elif defined(__aarch64__)
#define SIAFU_DECLARE(type, name) extern const type name##neon;
#define SIAFU_PICK(name) (name##neon)
#else
#define SIAFU_DECLARE(type, name) extern const type name##scalar;
#define SIAFU_PICK(name) (name##scalar)
#endif
