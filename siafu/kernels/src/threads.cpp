#include "threads.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace siafu {
namespace {

struct Job {
  Work work;
  const void* call;
  int64_t chunks;
  int threads;
  int helpers = 0;  // guarded by the pool's mutex
  std::atomic<int64_t> next{0};

  bool has_chunks() const { return next.load(std::memory_order_relaxed) < chunks; }

  // One chunk, if there is one left.
  bool step() {
    const int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
    if (chunk < chunks) work(call, chunk);
    return chunk < chunks;
  }
};

struct Pool {
  std::mutex mutex;
  std::condition_variable wanted, left;
  std::vector<Job*> jobs;
  int threads = 0;             // that exist
  std::atomic<int> active{0};  // callers and helpers at work; changed under the mutex

  Job* find() {
    for (Job* job : jobs)
      if (active < job->threads && job->has_chunks()) return job;
    return nullptr;
  }

  void serve() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      Job* job = nullptr;
      wanted.wait(lock, [&] { return (job = find()) != nullptr; });
      ++active, ++job->helpers;
      lock.unlock();
      // A caller that has come meanwhile takes our place: it is a thread that its process counts on.
      while (active.load(std::memory_order_relaxed) <= job->threads && job->step()) {
      }
      lock.lock();
      --active;
      if (--job->helpers == 0) left.notify_all();
    }
  }
};

Pool* pool = new Pool;  // never destroyed: its threads sleep in it until the process ends

void after_fork() { pool = new Pool; }  // threads stay behind in the parent

const int registered = pthread_atfork(nullptr, nullptr, after_fork);

}  // namespace

void parallel(int64_t chunks, int threads, Work work, const void* call) {
  Job job{work, call, chunks, threads};
  Pool& p = *pool;
  {
    std::lock_guard<std::mutex> lock(p.mutex);
    ++p.active;
    if (threads > 1 && chunks > 1) {
      p.jobs.push_back(&job);
      for (; p.threads < threads - 1; ++p.threads) std::thread([&p] { p.serve(); }).detach();
    }
  }
  for (int i = 1; i < threads && i < chunks; ++i) p.wanted.notify_one();
  while (job.step()) {
  }
  std::unique_lock<std::mutex> lock(p.mutex);
  p.jobs.erase(std::remove(p.jobs.begin(), p.jobs.end(), &job), p.jobs.end());
  p.left.wait(lock, [&] { return job.helpers == 0; });
  --p.active;
  if (!p.jobs.empty()) p.wanted.notify_one();
}

}  // namespace siafu
