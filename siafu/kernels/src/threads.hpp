// Threads that share the chunks of one call. They belong to the library: no OpenMP, so that calls from several Python
// threads do not start a team each, and a process that forks loses nothing but speed.
#pragma once
#include <algorithm>
#include <cstdint>

namespace siafu {

using Work = void (*)(const void* call, int64_t chunk);

// Runs work(call, 0..chunks-1), each once, in any order, on the caller and at most threads - 1 others, and returns when all
// are done. No more than `threads` run at once over all callers of the process that ask for as many.
void parallel(int64_t chunks, int threads, Work work, const void* call);

// Runs rows(begin, end) over the rows 0..num_rows-1 in chunks of `each`, as above.
template <typename Rows>
void parallel_rows(int64_t num_rows, int64_t each, int threads, const Rows& rows) {
  struct Call {
    int64_t num_rows, each;
    const Rows& rows;
  };
  const Call call{num_rows, each, rows};
  const auto chunk = [](const void* of, int64_t number) {
    const Call& c = *static_cast<const Call*>(of);
    c.rows(number * c.each, std::min((number + 1) * c.each, c.num_rows));
  };
  parallel((num_rows + each - 1) / each, threads, chunk, &call);
}

}  // namespace siafu
