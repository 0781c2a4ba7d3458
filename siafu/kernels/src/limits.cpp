// What the machine can do, for benchmarks to stand beside: STREAM's triad.
#include <cstdint>
#include <vector>

#include "isa.hpp"
#include "threads.hpp"

namespace {

struct Triad {
  float* a;
  const float *b, *c;
  int64_t n, chunk;
};

void triad_chunk(const void* call, int64_t number) {
  const Triad& t = *static_cast<const Triad*>(call);
  const int64_t end = (number + 1) * t.chunk < t.n ? (number + 1) * t.chunk : t.n;
  for (int64_t i = number * t.chunk; i < end; ++i) t.a[i] = t.b[i] + 3.0f * t.c[i];
}

}  // namespace

// a = b + 3 c over n floats (McCalpin's STREAM).
SIAFU_EXPORT void siafu_triad(float* a, const float* b, const float* c, int64_t n, int threads) {
  Triad call{a, b, c, n, 1 << 16};
  siafu::parallel((n + call.chunk - 1) / call.chunk, threads, triad_chunk, &call);
}
