#include "attention_add.hpp"

SIAFU_ATTENTION(forward_float_, float, ATTEND)
