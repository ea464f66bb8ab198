// What a trace of the job pool would take with other numbers of threads: the pool's own rules
// (kernel/job_pool.cpp) played through with the processor time of each piece, so that the result
// depends on the trace alone. Jobs are cut as their engines would cut them for that many threads,
// into equal parts; quick ones go to the threads like others. Not counted: caches, memory bandwidth
// and clocks that threads share, what a part does again that others do too (packed rhs), and the
// hand-over between threads.
#pragma once

#include <cstdint>

#include "kernel/job_trace.hpp"

namespace tpu::model {

struct ThreadForecast {
  int threads = 1;
  uint64_t total_ns = 0;   // from the first call to the last
  uint64_t events_ns = 0;  // of it the kernel thread's own work
  uint64_t wait_ns = 0;    // of it the kernel thread waited, with nothing to help with
  // Of it the kernel thread still helped with another job when the one it waited for was done.
  uint64_t late_ns = 0;
};

// `threads`: at least 1, the kernel thread included.
ThreadForecast forecast_threads(const JobTrace& trace, int threads);

}  // namespace tpu::model
