#include "attention_add.hpp"

SIAFU_ATTENTION(forward_bfloat16_, Bfloat16, ATTEND)
