// What vertex orders need beyond array operations: rounds of Louvain moves, and Gorder's greedy window. Integers only, so
// that every processor makes the same order; the moves are those of the array code in siafu/kernels/order.py.
#include <cstdint>
#include <vector>

#include "isa.hpp"
#include "threads.hpp"

namespace {

constexpr int64_t kChunk = 256;  // vertices that one thread takes at a time

// Mirrored by ctypes.Structure in siafu/kernels/order.py.
struct Moves {
  const int64_t* indptr;   // [n + 1]
  const int32_t* indices;  // [m], symmetric; an entry of the row itself counts in the degree alone
  const int64_t* weight;   // [m], or null: 1
  const int64_t* degree;   // [n], sum of the row's weights
  const int64_t* total;    // [n], sum of the degrees of all that the vertex is judged among
  int32_t* label;          // [n], in and out
  int64_t* volume;         // [n], sum of the degrees that carry a label: in and out
  int32_t* next;           // [n], scratch
  int64_t n, blocks, shift, threads;
  int64_t block;  // set here
};

// Votes for labels: open addressing, emptied through the list of the slots in use.
struct Votes {
  std::vector<int32_t> label;
  std::vector<int64_t> count;
  std::vector<uint32_t> used;
  uint32_t mask = 0;

  void reserve(int64_t labels) {
    uint64_t size = 64;
    while (size < 2 * static_cast<uint64_t>(labels)) size *= 2;
    if (size > label.size()) label.assign(size, -1), count.assign(size, 0);
    mask = static_cast<uint32_t>(size - 1);
  }

  void add(int32_t name, int64_t votes) {
    uint32_t slot = (static_cast<uint32_t>(name) * 2654435769u >> 7) & mask;
    while (label[slot] != name && label[slot] != -1) slot = (slot + 1) & mask;
    if (label[slot] == -1) label[slot] = name, used.push_back(slot);
    count[slot] += votes;
  }

  void clear() {
    for (uint32_t slot : used) label[slot] = -1, count[slot] = 0;
    used.clear();
  }
};

int32_t best_label(const Moves& m, int64_t v, Votes& votes) {
  const int64_t first = m.indptr[v], end = m.indptr[v + 1];
  const int32_t own = m.label[v];
  votes.reserve(end - first + 1);
  votes.add(own, 0);
  for (int64_t e = first; e < end; ++e)
    if (m.indices[e] != v) votes.add(m.label[m.indices[e]], m.weight ? m.weight[e] : 1);
  int32_t best = own;
  int64_t most = INT64_MIN;
  for (uint32_t slot : votes.used) {
    const int32_t label = votes.label[slot];
    const int64_t volume = m.volume[label] - (label == own ? m.degree[v] : 0);
    const int64_t score = votes.count[slot] * (m.total[v] >> m.shift) - m.degree[v] * (volume >> m.shift);
    if (score > most || (score == most && best != own && (label == own || label < best))) most = score, best = label;
  }
  votes.clear();
  return best;
}

void vote(const void* call, int64_t chunk) {
  const Moves& m = *static_cast<const Moves*>(call);
  thread_local Votes votes;
  const int64_t first = m.block + chunk * kChunk * m.blocks;
  for (int64_t i = 0, v = first; i < kChunk && v < m.n; ++i, v += m.blocks) m.next[v] = best_label(m, v, votes);
}

}  // namespace

// One round: every vertex takes the label that gains most modularity (Blondel et al. 2008). The vertices of a block,
// v mod blocks, decide at once, from what stood before the block. Returns how many took another label.
SIAFU_EXPORT int64_t siafu_move_labels(const Moves* given) {
  Moves m = *given;
  int64_t moved = 0;
  for (m.block = 0; m.block < m.blocks && m.block < m.n; ++m.block) {
    const int64_t members = (m.n - m.block + m.blocks - 1) / m.blocks;
    siafu::parallel((members + kChunk - 1) / kChunk, static_cast<int>(m.threads), vote, &m);
    for (int64_t v = m.block; v < m.n; v += m.blocks) {
      if (m.next[v] == m.label[v]) continue;
      m.volume[m.label[v]] -= m.degree[v];
      m.volume[m.next[v]] += m.degree[v];
      m.label[v] = m.next[v];
      ++moved;
    }
  }
  return moved;
}

namespace {

// Vertices by their count of relations to the window: one doubly linked list per count (Gorder's unit heap).
struct UnitHeap {
  std::vector<int32_t> key, before, after, head;
  int32_t top = 0;

  explicit UnitHeap(int64_t n) : key(n, 0), before(n), after(n), head(1, 0) {
    for (int64_t v = 0; v < n; ++v) before[v] = static_cast<int32_t>(v) - 1, after[v] = static_cast<int32_t>(v) + 1;
    after[n - 1] = -1;
  }

  void unlink(int32_t v) {
    if (before[v] >= 0) after[before[v]] = after[v];
    else head[key[v]] = after[v];
    if (after[v] >= 0) before[after[v]] = before[v];
  }

  void change(int32_t v, int32_t by) {
    if (key[v] < 0) return;  // taken
    unlink(v);
    key[v] += by;
    if (key[v] >= static_cast<int32_t>(head.size())) head.resize(2 * key[v] + 1, -1);
    const int32_t first = head[key[v]];
    before[v] = -1, after[v] = first, head[key[v]] = v;
    if (first >= 0) before[first] = v;
    if (key[v] > top) top = key[v];
  }

  int32_t take() {
    while (head[top] < 0) --top;
    const int32_t v = head[top];
    unlink(v);
    key[v] = -1;
    return v;
  }
};

}  // namespace

// Gorder (Wei et al., SIGMOD'16): next comes the vertex with most edges to, and most neighbours in common with, the last
// `window` ones. Neighbours in common are counted through vertices of at most `hub` edges. order: int32 [n], written.
SIAFU_EXPORT void siafu_gorder(const int64_t* indptr, const int32_t* indices, int64_t n, int64_t start, int64_t window,
                               int64_t hub, int32_t* order) {
  UnitHeap heap(n);
  const auto relate = [&](int32_t v, int32_t by) {
    for (int64_t e = indptr[v]; e < indptr[v + 1]; ++e) {
      const int32_t u = indices[e];
      heap.change(u, by);
      if (indptr[u + 1] - indptr[u] > hub) continue;
      for (int64_t f = indptr[u]; f < indptr[u + 1]; ++f) heap.change(indices[f], by);
    }
  };
  heap.change(static_cast<int32_t>(start), 1);
  for (int64_t i = 0; i < n; ++i) {
    order[i] = heap.take();
    relate(order[i], 1);
    if (i >= window) relate(order[i - window], -1);
  }
}
