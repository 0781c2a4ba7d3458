// What the louvain order needs beyond array operations: rounds of moves. Integers only, so that every processor makes the
// same order, the one that the array code in siafu/kernels/order.py makes.
#include <cstdint>
#include <vector>

#include "csr.hpp"
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
  int64_t n, num_edges, blocks, shift, threads;
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
// v mod blocks, decide at once, from what stood before the block. Returns how many took another label;
// -1: the edges or labels lead anywhere but to vertices, and nothing was done.
SIAFU_EXPORT int64_t siafu_move_labels(const Moves* given) {
  Moves m = *given;
  if (!siafu::rows_rise(m.indptr, 0, m.n, m.num_edges) || !siafu::columns_inside(m.label, 0, m.n, m.n) ||
      (m.n && !siafu::columns_inside(m.indices, m.indptr[0], m.indptr[m.n], m.n)))
    return -1;
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
