// Rows in 2, 4 or 8 bits and back: gpu_baselines/halos/quantise.py says what the bytes are, and has the same in numpy.
#pragma once
#include <cstdint>

#include "isa.hpp"

namespace siafu {

// Rows of one width of a message. Mirrored by siafu/kernels/quantise.py.
struct Quantise {
  float* rows;           // [*, width]: read, or written
  const int64_t* index;  // [num_rows]: which of them
  uint16_t* parameters;  // [num_rows, 2] bfloat16: Z and S
  uint8_t* codes;        // [num_rows, row_codes]
  int64_t num_rows, width, row_codes;
  uint64_t key;
  int32_t bits, threads;
};

struct QuantiseRows {
  bool (*quantise)(const Quantise&, int64_t row, int64_t end);  // false: a value is none, or beyond the limit
  void (*dequantise)(const Quantise&, int64_t row, int64_t end);
};

SIAFU_DECLARE(QuantiseRows, quantise_rows_)

}  // namespace siafu
