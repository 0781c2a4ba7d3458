// Dense products of many rows with a small matrix, and elementwise passes over rows: what both halves of dense*.cpp know.
#pragma once
#include <cstdint>

#include "isa.hpp"

namespace siafu {

// X W or X^T D. ``left`` is X [n, k]; ``right`` is W [k, m] or D [n, m]; ``out`` is [n, m] or [k, m]. Mirrored in dense.py.
// Rows are contiguous; strides are in bytes.
struct Product {
  const char *left, *right;
  char* out;
  const float* bias;  // [m] or null; for X W alone, as is ``relu``
  int64_t left_stride, right_stride, out_stride;
  int64_t n, k, m;
  int32_t left_bits, right_bits;  // bfloat16, not float32
  int32_t rounds;                 // float32 operands to bfloat16; always if one is bfloat16
  int32_t add, relu;              // onto what ``out`` holds; negative sums become 0
  int32_t threads;
};

// How an operand is cut and packed. A *word* is what one lane multiplies at a step: a float, or two bfloat16 of
// neighbours along the summed dimension, of which vdpbf16ps multiplies and adds both.
struct Plan {
  int64_t steps;       // words of the summed dimension in a block, at most
  int64_t blocks;      // X W: blocks of k;  X^T D: ranges of rows that are summed apart
  int64_t rows;        // X W: rows in a chunk;  X^T D: rows in such a range
  int64_t columns;     // X^T D: columns of X in a chunk
  int64_t width;       // and of D
  int64_t left_words;  // scratch of a chunk for its part of X, and for D
  int64_t right_words;
};

// Elementwise passes over rows [n, m] of float32, mirrored in passes.py; each uses what it needs.
struct Pass {
  float* rows;
  const char* other;      // H [n, m] of relu_backward; of cross_entropy which rows count, uint8 [n] or null
  const int64_t* labels;  // [n]
  float* out;             // relu_backward: [n, m]; column sums: [chunks, m]
  double* loss;           // [chunks]
  int64_t stride, other_stride, out_stride;  // bytes
  int64_t n, m, chunk;                       // chunk: rows of one
  float scale;
  int32_t other_bits, threads;
};

// One instruction set's part; AVX512_BF16's and AMX's multiply bfloat16 alone. ``scratch`` is the thread's own, 64-byte aligned.
struct DenseTable {
  int64_t lanes, group;  // floats in a vector; columns of X that X^T D packs together
  int64_t pair;         // numbers in a word: 2 if bfloat16 is multiplied as it is
  int64_t deep;         // a block's words are a multiple of so many
  int64_t steps, transposed_steps;  // words of a block, at most: of X W, and of X^T D
  int64_t tiles_nbytes;             // X^T D: of the result that a chunk adds to, at most
  void (*pack_weights)(const Product&, const Plan&, float* packed, int64_t block);
  void (*multiply)(const Product&, const Plan&, const float* packed, float* scratch, int64_t chunk);
  void (*multiply_transposed)(const Product&, const Plan&, float* partial, float* scratch, int64_t chunk);
  void (*relu)(const Pass&, int64_t chunk);
  void (*relu_backward)(const Pass&, int64_t chunk);
  void (*cross_entropy)(const Pass&, int64_t chunk);
  void (*column_sums)(const Pass&, int64_t chunk);
};

SIAFU_DECLARE(DenseTable, dense_rows_)
extern const DenseTable dense_rows_avx512bf16, dense_rows_amx;

}  // namespace siafu
