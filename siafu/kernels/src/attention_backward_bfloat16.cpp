#ifndef SIAFU_AVX512BF16  // which has AVX-512's
#include "attention_add.hpp"

SIAFU_ATTENTION(backward_bfloat16_, Bfloat16, BACKWARD)
#endif
