// Dense products and elementwise passes: how a call is cut into chunks, and what the chunks share. Nothing that decides the
// order of a sum depends on the number of threads.
#include "dense.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

#include "threads.hpp"

namespace siafu {
namespace {

// X W: rows of a chunk, so that their part of X's block and of the result stay in the second cache.
constexpr int64_t CHUNK_ROWS = 128;
// Ranges of rows that are summed apart: at least so many rows each, at most so many, and of all the sums at most so much.
constexpr int64_t RANGE_ROWS = 2048, RANGES = 64, PARTIAL_NBYTES = 8 << 20;

int64_t quotient(int64_t a, int64_t b) { return (a + b - 1) / b; }  // rounded up
int64_t multiple(int64_t a, int64_t of) { return quotient(a, of) * of; }

// Memory that a thread keeps from call to call.
class Scratch {
 public:
  ~Scratch() { std::free(place_); }

  float* floats(int64_t count) {
    if (count > size_) {
      std::free(place_);
      size_ = 0;
      if (posix_memalign(&place_, 64, multiple(count * 4, 64))) throw std::bad_alloc();
      size_ = count;
    }
    return static_cast<float*>(place_);
  }

 private:
  void* place_ = nullptr;
  int64_t size_ = 0;
};

thread_local Scratch of_chunk, of_call;

struct Call {
  const Product& product;
  const DenseTable& table;
  Plan plan;
  float* shared;  // packed W, or the partial sums
};

const Call& call_of(const void* call) { return *static_cast<const Call*>(call); }

void pack_block(const void* of, int64_t block) {
  const Call& c = call_of(of);
  c.table.pack_weights(c.product, c.plan, c.shared, block);
}

void multiply_chunk(const void* of, int64_t chunk) {
  const Call& c = call_of(of);
  c.table.multiply(c.product, c.plan, c.shared, of_chunk.floats(c.plan.left_words), chunk);
}

void transposed_chunk(const void* of, int64_t chunk) {
  const Call& c = call_of(of);
  float* scratch = of_chunk.floats(c.plan.left_words + c.plan.right_words);
  c.table.multiply_transposed(c.product, c.plan, c.shared, scratch, chunk);
}

// Adds the ranges' sums, in order, for some rows of the result.
void add_ranges(const void* of, int64_t chunk) {
  const Call& c = call_of(of);
  const Product& p = c.product;
  const int64_t stop = std::min((chunk + 1) * c.table.group, p.k);
  for (int64_t row = chunk * c.table.group; row < stop; ++row) {
    float* out = reinterpret_cast<float*>(p.out + row * p.out_stride);
    const float* partial = c.shared + row * p.m;
    if (!p.add) std::fill(out, out + p.m, 0.0f);
    for (int64_t range = 0; range < c.plan.blocks; ++range, partial += p.k * p.m)
      for (int64_t i = 0; i < p.m; ++i) out[i] += partial[i];
  }
}

const DenseTable& table_of(const Product& p) {
#ifdef SIAFU_HAS_AMX
  if (p.rounds && isa() == amx) return dense_rows_amx;
#endif
#ifdef SIAFU_HAS_AVX512BF16
  if (p.rounds && isa() == avx512bf16) return dense_rows_avx512bf16;
#endif
  return SIAFU_PICK(dense_rows_);
}

Plan plan_multiply(const Product& p, const DenseTable& table) {
  Plan plan{};
  const int64_t words = quotient(p.k, table.pair);
  plan.blocks = quotient(words, table.steps);
  plan.steps = multiple(quotient(words, plan.blocks), table.deep);
  plan.blocks = quotient(words, plan.steps);
  plan.rows = CHUNK_ROWS;
  const bool as_it_is = !p.rounds || (p.left_bits && table.pair > 1 && table.deep == 1);
  plan.left_words = as_it_is ? 0 : plan.rows * plan.steps;
  return plan;
}

Plan plan_transposed(const Product& p, const DenseTable& table) {
  Plan plan{};
  plan.steps = table.transposed_steps;
  // Each chunk packs its columns of X and of D: of the cuts whose results fit, the one that packs the fewest numbers.
  const int64_t vectors = quotient(p.m, table.lanes);
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (int64_t cuts = 1; cuts <= vectors; ++cuts) {
    const int64_t width = quotient(vectors, cuts) * table.lanes;
    const int64_t fitting = table.tiles_nbytes / (4 * width) / table.group * table.group;
    const int64_t of_left = quotient(p.k, std::max(fitting, table.group));
    const int64_t packed = quotient(p.m, width) * p.k + of_left * p.m;
    if (packed >= fewest) continue;
    fewest = packed;
    plan.width = width;
    plan.columns = multiple(quotient(p.k, of_left), table.group);
  }
  const int64_t ranges = std::min({RANGES, PARTIAL_NBYTES / (p.k * p.m * 4), quotient(p.n, RANGE_ROWS)});
  plan.rows = multiple(quotient(p.n, std::max<int64_t>(ranges, 1)), plan.steps * table.pair);
  plan.blocks = quotient(p.n, plan.rows);
  plan.left_words = plan.columns * plan.steps;
  plan.right_words = plan.width * plan.steps;
  return plan;
}

}  // namespace
}  // namespace siafu

using namespace siafu;

SIAFU_EXPORT void siafu_matmul(const Product* p) {
  const DenseTable& table = table_of(*p);
  Call call{*p, table, plan_multiply(*p, table), nullptr};
  call.shared = of_call.floats(call.plan.blocks * call.plan.steps * multiple(p->m, table.lanes));
  parallel(call.plan.blocks, p->threads, pack_block, &call);
  parallel(quotient(p->n, call.plan.rows), p->threads, multiply_chunk, &call);
}

SIAFU_EXPORT void siafu_matmul_transposed(const Product* p) {
  const DenseTable& table = table_of(*p);
  Call call{*p, table, plan_transposed(*p, table), nullptr};
  const int64_t ranges = call.plan.blocks;
  if (ranges > 1) call.shared = of_call.floats(ranges * p->k * p->m);
  const int64_t tiles = quotient(p->k, call.plan.columns) * quotient(p->m, call.plan.width);
  parallel(ranges * tiles, p->threads, transposed_chunk, &call);
  if (ranges > 1) parallel(quotient(p->k, table.group), p->threads, add_ranges, &call);
}

#define SIAFU_PASS(name)                                                                             \
  SIAFU_EXPORT void siafu_##name(const Pass* p) {                                                    \
    const auto chunk = [](const void* of, int64_t number) {                                          \
      (SIAFU_PICK(dense_rows_)).name(*static_cast<const Pass*>(of), number);                          \
    };                                                                                               \
    parallel(quotient(p->n, p->chunk), p->threads, chunk, p);                                        \
  }

SIAFU_PASS(relu)
SIAFU_PASS(relu_backward)
SIAFU_PASS(cross_entropy)
SIAFU_PASS(column_sums)
