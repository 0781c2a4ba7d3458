#ifndef SIAFU_AVX512BF16  // which has AVX-512's
#include "attention_add.hpp"

SIAFU_ATTENTION(forward_float_, float, ATTEND)
#endif
