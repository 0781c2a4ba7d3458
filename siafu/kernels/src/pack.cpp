#include "pack.hpp"

#include "threads.hpp"

namespace {

constexpr int64_t CHUNK_VALUES = 1 << 16;

}  // namespace

SIAFU_EXPORT void siafu_pack(const siafu::Pack* pack) {
  siafu::parallel_rows(pack->num_rows, CHUNK_VALUES / pack->width + 1, pack->threads, [pack](int64_t begin, int64_t end) {
    SIAFU_PICK(siafu::pack_rows_).pack(*pack, begin, end);
  });
}
