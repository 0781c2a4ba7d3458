#include "attention_add.hpp"

SIAFU_ATTENTION(backward_bfloat16_, Bfloat16, BACKWARD)
