#include "attention_add.hpp"

SIAFU_ATTENTION(backward_float_, float, BACKWARD)
