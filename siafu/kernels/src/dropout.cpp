#include "dropout.hpp"

#include "threads.hpp"

namespace {

constexpr int64_t CHUNK_VALUES = 1 << 15;

}  // namespace

SIAFU_EXPORT void siafu_dropout(const siafu::Dropout* call) {
  siafu::parallel_rows(call->n, CHUNK_VALUES / call->m + 1, call->threads, [call](int64_t begin, int64_t end) {
    SIAFU_PICK(siafu::dropout_rows_).dropped(*call, begin, end);
  });
}

SIAFU_EXPORT void siafu_dropout_sparse(const siafu::SparseDropout* call) { SIAFU_PICK(siafu::dropout_rows_).sparse(*call); }
