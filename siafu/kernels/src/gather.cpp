// Cuts a gather into strips of columns and chunks of rows, and lets threads share them.
#include "gather.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "csr.hpp"
#include "threads.hpp"

namespace siafu {
namespace {

// What a row costs beside its edges, in edges.
constexpr int64_t ROW_COST = 8;
constexpr int64_t MAX_CHUNK = 16384, MIN_CHUNK = 1024;  // edges

int64_t value_bytes(int type) { return type == float64 ? 8 : type == float32 ? 4 : type == uint8 ? 1 : 2; }

// Edges whose rows are fetched ahead: what is on its way must not push what came out of the first-level cache again.
int64_t edges_ahead(int64_t strip_bytes) { return std::max<int64_t>(16, std::min<int64_t>(192, 12288 / strip_bytes)); }

struct Shared {
  Shared(const Gather& gather) : g(gather), kernels(SIAFU_PICK(gather_rows_).types[gather.type]) {
    cut_strips();
    tiled = g.width > g.base.tile;
    if (g.start == g.stop) return;
    if (!rows_rise(g.indptr, g.start, g.stop, g.num_edges)) {
      wild = true;
      return;
    }
    cost = g.indptr[g.stop] - g.indptr[g.start] + ROW_COST * (g.stop - g.start);
    chunk_cost = std::max(MIN_CHUNK, std::min(MAX_CHUNK, cost / (16 * g.threads)));
    chunks = (cost + chunk_cost - 1) / chunk_cost;
    for (int64_t row = g.start; row < g.stop; ++row)
      if (is_hub(g.indptr, row)) hubs.push_back(row);
  }

  void cut_strips() {
    const int64_t lanes = kernels.lanes, bytes = value_bytes(g.type);
    const int64_t tile = g.base.tile;
    for (int64_t tile_first = 0; tile_first < g.width; tile_first += tile) {
      const int64_t tile_width = std::min(tile, g.width - tile_first);
      const int64_t vectors = (tile_width + lanes - 1) / lanes;
      const int64_t parts = (vectors + kernels.max_vectors - 1) / kernels.max_vectors;
      for (int64_t part = 0; part < parts; ++part) {  // of about the same width
        const int64_t from = vectors * part / parts, to = vectors * (part + 1) / parts;
        Strip s{};
        s.first = tile_first + from * lanes;
        s.vectors = to - from;
        s.last = (s.vectors - 1) * lanes;
        s.count = std::min(lanes, tile_first + tile_width - s.first - s.last);
        if (!g.padded && s.count < lanes && g.width >= lanes) {
          s.last -= lanes - s.count;
          s.count = lanes;
        }
        s.base = at(g.base, s.first, bytes);
        s.base_bytes = g.base.row_bytes;
        s.far = g.num_columns * s.vectors * lanes * bytes > FAR_BYTES;
        s.prefetch = g.prefetch >= 0 ? g.prefetch : edges_ahead(s.vectors * lanes * bytes);
        strips.push_back(s);
      }
    }
  }

  static const char* at(const Source& source, int64_t column, int64_t bytes) {
    return source.rows + column / source.tile * source.tile_bytes + column % source.tile * bytes;
  }

  const StripKernel& kernel(const Strip& s) const {
    if (!g.padded && s.count < kernels.lanes) return kernels.narrow;
    const int64_t bytes = s.vectors * kernels.lanes * value_bytes(g.type);
    const bool overlaps = s.last != (s.vectors - 1) * kernels.lanes;  // the last vector begins inside the one before
    if (!g.weight && !overlaps && s.vectors <= 4 && s.base_bytes == bytes) {
      const StripKernel& packed = kernels.packed[s.vectors - 1];
      if (packed.rows) return packed;
    }
    return kernels.strips[g.weight != nullptr][s.vectors - 1];
  }

  // The first row at or behind which the range has cost `wanted`.
  int64_t row_at(int64_t wanted) const {
    int64_t low = g.start, high = g.stop;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (g.indptr[middle] - g.indptr[g.start] + ROW_COST * (middle - g.start) < wanted)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  void rows_of(int64_t chunk, size_t first_strip, size_t end_strip) const {
    const int64_t row = row_at(chunk * chunk_cost), end = chunk + 1 == chunks ? g.stop : row_at((chunk + 1) * chunk_cost);
    if (!columns_inside(g.indices, g.indptr[row], g.indptr[end], g.num_columns)) {
      wild = true;
      return;
    }
    for (size_t i = first_strip; i < end_strip; ++i) {
      const Strip& s = strips[i];
      int64_t last = end;  // from here on there are too few edges to fetch ahead
      while (last > row && g.indptr[last] + s.prefetch + GROUP > g.num_edges) --last;
      kernel(s).rows(g, s, row, last);
      if (last < end) kernel(s).rows(g, without_prefetch(s), last, end);
    }
  }

  static Strip without_prefetch(Strip s) {
    s.prefetch = 0;
    return s;
  }

  const Gather& g;
  const TypeKernels& kernels;
  std::vector<Strip> strips;
  std::vector<int64_t> hubs;
  int64_t cost = 0, chunk_cost = 0, chunks = 0;
  mutable std::atomic<bool> wild{false};  // the edges lead anywhere: what was summed is not all
  bool tiled;  // all rows of one strip before those of the next, so that a tile stays in the cache
};

void work_on_rows(const void* call, int64_t number) {
  const Shared& shared = *static_cast<const Shared*>(call);
  if (!shared.tiled) return shared.rows_of(number, 0, shared.strips.size());
  const size_t strip = static_cast<size_t>(number / shared.chunks);
  shared.rows_of(number % shared.chunks, strip, strip + 1);
}

// --- hubs: the threads share them, a segment each -------------------------------------------------------------------------

struct Hubs {
  Hubs(const Shared& gather) : shared(gather), segments(1, 0) {
    for (const int64_t row : shared.hubs) {
      const int64_t edges = shared.g.indptr[row + 1] - shared.g.indptr[row];
      segments.push_back(segments.back() + (edges + SEGMENT - 1) / SEGMENT);
    }
    sums_bytes = MAX_VECTORS * shared.kernels.lanes * (shared.g.type == float64 ? 8 : 4);
    sums.resize(static_cast<size_t>(segments.back() * sums_bytes));
  }

  const Shared& shared;
  const Strip* strip = nullptr;
  std::vector<int64_t> segments;  // [hubs + 1], the first segment of each hub
  int64_t sums_bytes;
  std::vector<char> sums;  // [segments, MAX_VECTORS vectors]
};

void sum_segment(const void* call, int64_t number) {
  const Hubs& hubs = *static_cast<const Hubs*>(call);
  const Gather& g = hubs.shared.g;
  const auto after = std::upper_bound(hubs.segments.begin(), hubs.segments.end(), number);
  const int64_t row = hubs.shared.hubs[static_cast<size_t>(after - hubs.segments.begin() - 1)];
  const int64_t first = g.indptr[row] + (number - *(after - 1)) * SEGMENT;
  const int64_t end = std::min(first + SEGMENT, g.indptr[row + 1]);
  const bool fetched = end + hubs.strip->prefetch + GROUP <= g.num_edges;
  const Strip strip = fetched ? *hubs.strip : Shared::without_prefetch(*hubs.strip);
  char* sums = const_cast<char*>(hubs.sums.data()) + number * hubs.sums_bytes;  // each segment its own
  hubs.shared.kernel(strip).segment(g, strip, first, end, sums);
}

void finish_hub(const void* call, int64_t number) {
  const Hubs& hubs = *static_cast<const Hubs*>(call);
  const int64_t first = hubs.segments[static_cast<size_t>(number)], end = hubs.segments[static_cast<size_t>(number) + 1];
  hubs.shared.kernel(*hubs.strip)
      .finish(hubs.shared.g, *hubs.strip, hubs.shared.hubs[static_cast<size_t>(number)],
              hubs.sums.data() + first * hubs.sums_bytes, end - first);
}

void gather_hubs(const Shared& shared) {
  Hubs hubs(shared);
  for (const Strip& strip : shared.strips) {
    hubs.strip = &strip;
    parallel(hubs.segments.back(), shared.g.threads, sum_segment, &hubs);
    parallel(static_cast<int64_t>(shared.hubs.size()), shared.g.threads, finish_hub, &hubs);
  }
}

// --- the limit ------------------------------------------------------------------------------------------------------------

struct Reading {
  const Shared& shared;
  int64_t chunks;
  float* totals;  // [chunks]
};

void read_chunk(const void* call, int64_t number) {
  const Reading& reading = *static_cast<const Reading*>(call);
  const Shared& shared = reading.shared;
  const int64_t strip = shared.tiled ? number / reading.chunks : 0, first = number % reading.chunks * MAX_CHUNK;
  const int64_t end = std::min(first + MAX_CHUNK, shared.g.num_edges);
  const int64_t end_strip = shared.tiled ? strip + 1 : static_cast<int64_t>(shared.strips.size());
  for (int64_t i = strip; i < end_strip; ++i) {
    const Strip& s = shared.strips[static_cast<size_t>(i)];
    reading.totals[number] += shared.kernel(s).drain(s, shared.g.indices, first, end, shared.g.num_edges);
  }
}

}  // namespace
}  // namespace siafu

// Not 0: the edges lead anywhere but to rows, and `out` holds nothing of use.
SIAFU_EXPORT int siafu_gather(const siafu::Gather* gather) {
  const siafu::Shared shared(*gather);
  const int64_t items = shared.chunks * (shared.tiled ? static_cast<int64_t>(shared.strips.size()) : 1);
  siafu::parallel(items, gather->threads, siafu::work_on_rows, &shared);
  if (!shared.hubs.empty() && !shared.wild) siafu::gather_hubs(shared);
  return shared.wild;
}

// Reads the rows that a gather reads, in its order, and sums them in registers: no row ends, nothing is written.
// Takes of the gather: indices, num_edges, base, width, type, padded, threads, prefetch.
SIAFU_EXPORT float siafu_read_rows(const siafu::Gather* gather) {
  const siafu::Shared shared(*gather);
  const int64_t chunks = (gather->num_edges + siafu::MAX_CHUNK - 1) / siafu::MAX_CHUNK;
  const int64_t items = chunks * (shared.tiled ? static_cast<int64_t>(shared.strips.size()) : 1);
  std::vector<float> totals(static_cast<size_t>(items));
  const siafu::Reading reading{shared, chunks, totals.data()};
  siafu::parallel(items, gather->threads, siafu::read_chunk, &reading);
  float total = 0;
  for (const float part : totals) total += part;
  return total;
}
