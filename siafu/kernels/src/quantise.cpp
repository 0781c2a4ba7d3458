#include "quantise.hpp"

#include <atomic>

#include "threads.hpp"

namespace {

constexpr int64_t CHUNK_VALUES = 1 << 16;

template <typename Rows>
void all(const siafu::Quantise& call, const Rows& rows) {
  siafu::parallel_rows(call.num_rows, CHUNK_VALUES / (call.width + 1) + 1, call.threads, rows);
}

}  // namespace

// 0: a value is no number, or beyond the limit.
SIAFU_EXPORT int32_t siafu_quantise(const siafu::Quantise* call) {
  std::atomic<bool> good{true};
  all(*call, [call, &good](int64_t begin, int64_t end) {
    if (!SIAFU_PICK(siafu::quantise_rows_).quantise(*call, begin, end)) good = false;
  });
  return good;
}

SIAFU_EXPORT void siafu_dequantise(const siafu::Quantise* call) {
  all(*call, [call](int64_t begin, int64_t end) { SIAFU_PICK(siafu::quantise_rows_).dequantise(*call, begin, end); });
}
