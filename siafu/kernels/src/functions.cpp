#include "functions.hpp"

#include "threads.hpp"

SIAFU_EXPORT void siafu_elementwise(const siafu::Elementwise* call) { (SIAFU_PICK(siafu::functions_rows_)).apply(*call); }

SIAFU_EXPORT void siafu_binary_cross_entropy(const siafu::BinaryCrossEntropy* call) {
  siafu::parallel_rows(call->n, call->chunk, call->threads, [call](int64_t first, int64_t end) {
    call->loss[first / call->chunk] = (SIAFU_PICK(siafu::functions_rows_)).cross_entropy(*call, first, end);
  });
}
