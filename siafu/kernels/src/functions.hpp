// Elementary functions of whole arrays, of our own: the C library's and NumPy's differ between processors and versions.
#pragma once
#include <cstdint>

#include "isa.hpp"

namespace siafu {

// Mirrored by siafu/kernels/functions.py, as is the order of the functions.
struct Elementwise {
  const void* x;
  void* y;  // may be x
  int64_t n;
  int32_t function;
  int32_t is_double;  // else float
};

enum Function { EXP, EXPM1, LOG, LOG1P, TANH };

struct FunctionRows {
  void (*apply)(const Elementwise&);
};

SIAFU_DECLARE(FunctionRows, functions_rows_)

}  // namespace siafu
