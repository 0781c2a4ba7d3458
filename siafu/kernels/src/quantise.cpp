#include "quantise.hpp"

#include <atomic>

#include "threads.hpp"

namespace {

constexpr int64_t CHUNK_VALUES = 1 << 16;

struct Chunks {
  const siafu::Quantise& call;
  int64_t rows;
  std::atomic<bool>& good;

  int64_t end(int64_t number) const {
    const int64_t end = (number + 1) * rows;
    return end < call.num_rows ? end : call.num_rows;
  }
};

void quantise_chunk(const void* call, int64_t number) {
  const Chunks& c = *static_cast<const Chunks*>(call);
  if (!SIAFU_PICK(siafu::quantise_rows_).quantise(c.call, number * c.rows, c.end(number))) c.good = false;
}

void dequantise_chunk(const void* call, int64_t number) {
  const Chunks& c = *static_cast<const Chunks*>(call);
  SIAFU_PICK(siafu::quantise_rows_).dequantise(c.call, number * c.rows, c.end(number));
}

bool all(const siafu::Quantise& call, siafu::Work chunk) {
  std::atomic<bool> good{true};
  const int64_t rows = CHUNK_VALUES / (call.width + 1) + 1;
  const Chunks chunks{call, rows, good};
  siafu::parallel((call.num_rows + rows - 1) / rows, call.threads, chunk, &chunks);
  return good;
}

}  // namespace

// 0: a value is no number, or beyond the limit.
SIAFU_EXPORT int32_t siafu_quantise(const siafu::Quantise* call) { return all(*call, quantise_chunk); }

SIAFU_EXPORT void siafu_dequantise(const siafu::Quantise* call) { all(*call, dequantise_chunk); }
