#ifndef SIAFU_AVX512BF16  // which has AVX-512's
#include "attention_add.hpp"

SIAFU_ATTENTION(forward_bfloat16_, Bfloat16, ATTEND)
#endif
