#include "pack.hpp"

#include "threads.hpp"

namespace {

constexpr int64_t CHUNK_VALUES = 1 << 16;

struct Chunks {
  const siafu::Pack& pack;
  int64_t rows;
};

void pack_chunk(const void* call, int64_t number) {
  const Chunks& c = *static_cast<const Chunks*>(call);
  const int64_t end = (number + 1) * c.rows;
  SIAFU_PICK(siafu::pack_rows_).pack(c.pack, number * c.rows, end < c.pack.num_rows ? end : c.pack.num_rows);
}

}  // namespace

SIAFU_EXPORT void siafu_pack(const siafu::Pack* pack) {
  const int64_t rows = CHUNK_VALUES / pack->width + 1;
  const Chunks call{*pack, rows};
  siafu::parallel((pack->num_rows + rows - 1) / rows, pack->threads, pack_chunk, &call);
}
