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

  StripKernel kernel(const Strip& s) const {
    if (!g.padded && s.count < kernels.lanes) return kernels.narrow;
    const int64_t read = g.padded && s.vectors == 3 ? 4 : s.vectors, bytes = read * kernels.lanes * value_bytes(g.type);
    const bool overlaps = s.last != (s.vectors - 1) * kernels.lanes;  // the last vector begins inside the one before
    if (!g.weight && !overlaps && s.vectors <= 4 && s.base_bytes == bytes) {
      if (const StripKernel packed = kernels.packed[s.vectors - 1]) return packed;
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
      kernel(s)(g, s, row, last, hubs_from(row));
      if (last < end) kernel(s)(g, without_prefetch(s), last, end, hubs_from(last));
    }
  }

  // Of the first hub at or behind the row.
  const char* hubs_from(int64_t row) const {
    const auto hub = std::lower_bound(hubs.begin(), hubs.end(), row) - hubs.begin();
    return hub_sums.data() + hub * g.width * sum_bytes();
  }

  int64_t sum_bytes() const { return g.type == float64 ? 8 : 4; }

  static Strip without_prefetch(Strip s) {
    s.prefetch = 0;
    return s;
  }

  const Gather& g;
  const TypeKernels& kernels;
  std::vector<Strip> strips;
  std::vector<int64_t> hubs;
  std::vector<char> hub_sums;  // [hubs, width]
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

// --- hubs: before other rows, for the threads share them, a segment each ------------------------------------------------

struct Hubs {
  explicit Hubs(Shared& gather) : shared(gather), segments(1, 0) {
    const auto row_bytes = static_cast<size_t>(shared.g.width * shared.sum_bytes());
    for (const int64_t row : shared.hubs) {
      const int64_t edges = shared.g.indptr[row + 1] - shared.g.indptr[row];
      segments.push_back(segments.back() + (edges + SEGMENT - 1) / SEGMENT);
    }
    sums.resize(static_cast<size_t>(segments.back()) * row_bytes);
    shared.hub_sums.resize(shared.hubs.size() * row_bytes);
  }

  Shared& shared;
  std::vector<int64_t> segments;  // [hubs + 1], the first segment of each hub
  std::vector<char> sums;         // [segments, width]
};

// A segment is summed as a row of its own.
void sum_segment(const void* call, int64_t number) {
  const Hubs& hubs = *static_cast<const Hubs*>(call);
  const Gather& g = hubs.shared.g;
  const auto after = std::upper_bound(hubs.segments.begin(), hubs.segments.end(), number);
  const int64_t row = hubs.shared.hubs[static_cast<size_t>(after - hubs.segments.begin() - 1)];
  const int64_t first = g.indptr[row] + (number - *(after - 1)) * SEGMENT;
  const int64_t ends[] = {first, std::min(first + SEGMENT, g.indptr[row + 1])};
  if (!columns_inside(g.indices, ends[0], ends[1], g.num_columns)) {
    hubs.shared.wild = true;
    return;
  }
  Gather segment = g;
  segment.indptr = ends, segment.start = 0, segment.stop = 1;
  segment.scale = segment.bias = segment.add = nullptr, segment.add_self = segment.relu = 0;
  segment.out = const_cast<char*>(hubs.sums.data()) + number * g.width * hubs.shared.sum_bytes();  // each its own
  for (const Strip& s : hubs.shared.strips) {
    const bool fetched = ends[1] + s.prefetch + GROUP <= g.num_edges;
    hubs.shared.kernel(s)(segment, fetched ? s : Shared::without_prefetch(s), 0, 1, nullptr);
  }
}

template <class Sum>
void add_segments(const Hubs& hubs, int64_t hub) {
  const int64_t width = hubs.shared.g.width;
  Sum* out = reinterpret_cast<Sum*>(hubs.shared.hub_sums.data()) + hub * width;
  for (int64_t i = hubs.segments[static_cast<size_t>(hub)]; i < hubs.segments[static_cast<size_t>(hub) + 1]; ++i) {
    const Sum* part = reinterpret_cast<const Sum*>(hubs.sums.data()) + i * width;
    for (int64_t j = 0; j < width; ++j) out[j] += part[j];
  }
}

void finish_hub(const void* call, int64_t number) {
  const Hubs& hubs = *static_cast<const Hubs*>(call);
  hubs.shared.g.type == float64 ? add_segments<double>(hubs, number) : add_segments<float>(hubs, number);
}

void gather_hubs(Shared& shared) {
  const Hubs hubs(shared);
  parallel(hubs.segments.back(), shared.g.threads, sum_segment, &hubs);
  parallel(static_cast<int64_t>(shared.hubs.size()), shared.g.threads, finish_hub, &hubs);
}

}  // namespace
}  // namespace siafu

// Not 0: the edges lead anywhere but to rows, and `out` holds nothing of use.
SIAFU_EXPORT int siafu_gather(const siafu::Gather* gather) {
  siafu::Shared shared(*gather);
  if (!shared.hubs.empty()) siafu::gather_hubs(shared);
  const int64_t items = shared.chunks * (shared.tiled ? static_cast<int64_t>(shared.strips.size()) : 1);
  siafu::parallel(items, gather->threads, siafu::work_on_rows, &shared);
  return shared.wild;
}
