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

// Sigmoid cross-entropy of logits and labels in [0, 1], and its gradient. Mirrored by siafu/kernels/functions.py.
struct BinaryCrossEntropy {
  const void *logits, *labels;  // [n]; float, or double as ``is_double`` says
  void* gradient;               // [n]
  double* loss;                 // a sum of each chunk
  int64_t n, chunk;             // values
  int32_t classes;              // which the gradient is divided by
  int32_t is_double, threads;
};

struct FunctionRows {
  void (*apply)(const Elementwise&);
  double (*cross_entropy)(const BinaryCrossEntropy&, int64_t first, int64_t end);
};

SIAFU_DECLARE(FunctionRows, functions_rows_)

}  // namespace siafu
