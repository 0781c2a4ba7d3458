#include "functions.hpp"

SIAFU_EXPORT void siafu_elementwise(const siafu::Elementwise* call) { (SIAFU_PICK(siafu::functions_rows_)).apply(*call); }
