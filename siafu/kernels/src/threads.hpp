// Threads that share the chunks of one call. They belong to the library: no OpenMP, so that calls from several Python
// threads do not start a team each, and a process that forks loses nothing but speed.
#pragma once
#include <cstdint>

namespace siafu {

using Work = void (*)(const void* call, int64_t chunk);

// Runs work(call, 0..chunks-1), each once, in any order, on the caller and at most threads - 1 others, and returns when all
// are done. No more than `threads` run at once over all callers of the process that ask for as many.
void parallel(int64_t chunks, int threads, Work work, const void* call);

}  // namespace siafu
