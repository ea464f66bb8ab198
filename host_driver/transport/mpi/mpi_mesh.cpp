// MPI has nothing that poll() could wait for, and its own waits use a processor each. So the thread
// looks, and sleeps for longer the longer nothing comes.
#include "transport/mpi/mpi_mesh.hpp"

#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sync/mutex.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"
#include "transport/mpi/mpi_people.hpp"
#include "transport/mpi/mpi_way.hpp"

namespace tpu::driver::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStreams = 2;  // to each rank
constexpr int kLooks = 50;   // without sleep, since something came
constexpr std::chrono::microseconds kNapStep{20};
constexpr std::chrono::microseconds kMostNap{1000};
constexpr std::chrono::milliseconds kLifeLook{200};  // between two looks at which ranks live
// mpirun sends SIGTERM when a rank has died, and SIGKILL 1 s later. In between the others say which
// it was, if they see it, and why they end.
constexpr std::chrono::milliseconds kLookForTheDead{100};
constexpr std::chrono::milliseconds kLastWords{600};
constexpr std::chrono::milliseconds kWaitForTheSignal{1000};  // behind a death that this rank saw

std::atomic<bool> is_told_to_end = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not take locks");

void note_end(int /*signal*/) { is_told_to_end.store(true); }

// What the program does with the signal itself, it goes on doing.
void watch_for_end() {
  struct sigaction now {};
  if (::sigaction(SIGTERM, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    struct sigaction action {};
    action.sa_handler = note_end;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGTERM, &action, nullptr);
  }
}

// A handler that the program has set since stays.
void stop_watching() {
  struct sigaction now {};
  if (::sigaction(SIGTERM, nullptr, &now) == 0 && now.sa_handler == note_end) {
    ::signal(SIGTERM, SIG_DFL);
  }
}

void end_by_the_signal() {
  ::signal(SIGTERM, SIG_DFL);
  ::kill(::getpid(), SIGTERM);
}

// Versions, arguments and the number of ranks.
bool is_of_all_ranks(const std::exception_ptr& trouble) {
  try {
    std::rethrow_exception(trouble);
  } catch (const Error& error) {
    return error.code() == ErrorCode::kFailedPrecondition;
  } catch (...) {
    return false;
  }
}

class Mesh final : public MpiMesh {
 public:
  Mesh() {
    std::thread([this] { work(); }).detach();  // finish() waits for what it does
    const base::MutexLock lock(mutex_);
    while (!begun_) {
      turn_.wait(mutex_);
    }
  }

  void check() const {
    const base::MutexLock lock(mutex_);
    if (trouble_) {
      std::rethrow_exception(trouble_);
    }
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::string name_of(int rank) const override { return people_->name_of(rank); }

  base::Descriptor take(int rank, MpiStream stream) override {
    const base::MutexLock lock(mutex_);
    base::Descriptor end = ways_.at(index_of(rank, static_cast<int>(stream)))->take();
    if (!end.valid()) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "OpenOptions::connect: mpi: the ranks of mpirun have had a board already; use "
                  "another mpirun for another board");
    }
    return end;
  }

  void give_up() override { gives_up_ = true; }

  void finish(std::chrono::milliseconds patience) override {
    const base::MutexLock lock(mutex_);
    for (const auto& way : ways_) {
      if (way != nullptr) {
        way->take();  // closes what nobody has taken
      }
    }
    last_ = Clock::now() + patience;
    while (!ended_) {
      turn_.wait(mutex_);
    }
  }

 private:
  static size_t index_of(int rank, int stream) {
    return static_cast<size_t>(rank) * kStreams + static_cast<size_t>(stream);
  }

  void work() {
    try {
      begin();
      leave(move_all());
    } catch (...) {
      fail(std::current_exception());
    }
    if (is_told_to_end) {
      // The program had this time for an error of a stream; it may compute, or sleep, and see none.
      std::this_thread::sleep_until(told_.value_or(Clock::now()) + kLastWords);
      end_by_the_signal();
    }
  }

  // Until all streams have ended; whether they ended in order.
  bool move_all() {
    ::prctl(PR_SET_TIMERSLACK, 1);  // of this thread: its naps are as short as it says
    auto looked = Clock::now();
    int looks = 0;
    std::chrono::microseconds nap{0};
    while (!is_over()) {
      const auto now = Clock::now();
      if (step()) {
        looks = 0;
        nap = std::chrono::microseconds(0);
      } else if (++looks > kLooks) {
        nap = std::min(kMostNap, nap + kNapStep);
        sleep(nap);
      }
      if (is_told_to_end || now - looked >= kLifeLook) {
        looked = now;
        look_for_the_dead();
      }
      if (is_told_to_end) {
        obey(now);
      }
      if (gives_up_) {
        lose_all();
      }
      if (is_late(now)) {
        return false;
      }
    }
    return std::ranges::none_of(ways_, [](const auto& way) { return way && way->is_lost(); });
  }

  // From here on nobody acts upon a signal that is only noted: it does what it did before.
  void leave(bool is_whole) {
    if (is_whole) {
      stop_watching();  // before the end of MPI, which waits for other ranks
      if (!is_told_to_end) {
        end();
      }
    }
    {
      const base::MutexLock lock(mutex_);
      ended_ = true;
      turn_.notify_all();
    }
    // The signal that follows a death leaves the program its time, too.
    for (const auto begin = Clock::now();
         !is_whole && !is_told_to_end && Clock::now() - begin < kWaitForTheSignal;) {
      std::this_thread::sleep_for(kMostNap);
    }
    stop_watching();
  }

  void begin() {
    int is_begun = 0;
    int given = MPI_THREAD_MULTIPLE;
    ::MPI_Initialized(&is_begun);
    if (is_begun != 0) {
      ::MPI_Query_thread(&given);
      if (given < MPI_THREAD_MULTIPLE) {
        throw Error(ErrorCode::kFailedPrecondition,
                    "OpenOptions::connect: mpi: the program has begun MPI for one thread; begin it "
                    "with MPI_THREAD_MULTIPLE, or not at all");
      }
    } else {
      // Open MPI on a host with more ranks than processors would give the processor away in each
      // look, which a busy host gives back milliseconds later. This thread sleeps by itself.
      ::setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);  // NOLINT(concurrency-mt-unsafe)
      // Of the threads that the process has, this one alone calls MPI.
      ::MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given);
      ends_mpi_ = true;
    }
    if (given < MPI_THREAD_FUNNELED) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "OpenOptions::connect: mpi: this MPI allows no calls in a program with several "
                  "threads (MPI_THREAD_FUNNELED); use an MPI that was built with threads");
    }
    watch_for_end();
    ::MPI_Comm_dup(MPI_COMM_WORLD, &all_);
    ::MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN);
    ::MPI_Comm_rank(all_, &rank_);
    ::MPI_Comm_size(all_, &ranks_);
    if (ranks_ < 2) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "OpenOptions::connect: mpi: needs several ranks of one program; start it with "
                  "mpirun -n COUNT");
    }
    people_.emplace(all_);
    const base::MutexLock lock(mutex_);
    ways_.resize(index_of(ranks_, 0));
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int stream = 0; rank != rank_ && stream < kStreams; ++stream) {
        ways_[index_of(rank, stream)] = std::make_unique<MpiWay>(all_, rank, stream);
      }
    }
    begun_ = true;
    turn_.notify_all();
  }

  // The program may end as soon as it has the error, so MPI has ended before. The end of MPI waits
  // for all ranks: only what they all find ends it.
  void fail(std::exception_ptr trouble) {
    stop_watching();
    if (is_of_all_ranks(trouble)) {
      end();
    }
    const base::MutexLock lock(mutex_);
    ways_.clear();
    trouble_ = std::move(trouble);
    begun_ = ended_ = true;
    turn_.notify_all();
  }

  void end() {
    if (ends_mpi_) {
      ::MPI_Finalize();
    } else if (all_ != MPI_COMM_NULL) {
      ::MPI_Comm_free(&all_);
    }
  }

  bool step() {
    bool moved = false;
    for (const auto& way : ways_) {
      moved = (way != nullptr && way->step()) || moved;
    }
    return moved;
  }

  bool is_over() const {
    return std::ranges::all_of(ways_,
                               [](const auto& way) { return way == nullptr || way->is_over(); });
  }

  bool is_late(Clock::time_point now) const {
    const base::MutexLock lock(mutex_);
    return last_ && now >= *last_;
  }

  void look_for_the_dead() {
    for (int rank = 0; rank < ranks_; ++rank) {
      bool is_lost = false;
      for (int stream = 0; rank != rank_ && stream < kStreams; ++stream) {
        MpiWay& way = *ways_[index_of(rank, stream)];
        if (!way.is_over() && people_->has_ended(rank)) {
          way.lose();
          is_lost = is_lost || way.is_lost();
        }
      }
      if (is_lost) {
        spec::print(stderr, "tpuboard: rank {} of mpirun: {} has ended\n", rank_, name_of(rank));
        saw_the_dead_ = true;
      }
    }
  }

  // A program that was told to end, and does not end in time by the errors that this makes, ends by
  // the signal.
  void obey(Clock::time_point now) {
    if (!told_) {
      told_ = now;
    }
    if (now - *told_ >= kLookForTheDead && !saw_the_dead_) {
      saw_the_dead_ = true;
      spec::print(stderr, "tpuboard: {} is told to end (SIGTERM)\n", name_of(rank_));
      lose_all();
    }
    if (now - *told_ >= kLastWords) {
      end_by_the_signal();
    }
  }

  void lose_all() {
    for (const auto& way : ways_) {
      if (way != nullptr && !way->is_over()) {
        way->lose();
      }
    }
  }

  // Wakes for bytes of this process.
  void sleep(std::chrono::microseconds nap) const {
    std::vector<pollfd> all;
    for (const auto& way : ways_) {
      if (way != nullptr && way->wants_bytes()) {
        all.push_back({way->socket(), POLLIN, 0});
      }
    }
    const timespec time{0, std::chrono::nanoseconds(nap).count()};
    ::ppoll(all.data(), all.size(), &time, nullptr);
  }

  mutable base::Mutex mutex_;
  base::CondVar turn_;
  bool begun_ TPU_GUARDED_BY(mutex_) = false;
  bool ended_ TPU_GUARDED_BY(mutex_) = false;
  std::exception_ptr trouble_ TPU_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> last_ TPU_GUARDED_BY(mutex_);  // of finish()
  std::atomic<bool> gives_up_ = false;
  // These are made before begun_, and what changes then is the thread's.
  MPI_Comm all_ = MPI_COMM_NULL;
  bool ends_mpi_ = false;
  int rank_ = 0;
  int ranks_ = 0;
  std::optional<MpiPeople> people_;
  std::vector<std::unique_ptr<MpiWay>> ways_;
  std::optional<Clock::time_point> told_;  // to end
  bool saw_the_dead_ = false;
};

}  // namespace

MpiMesh& MpiMesh::of_process() {
  static Mesh& mesh = *new Mesh;  // never destroyed: finish() ends it
  mesh.check();
  return mesh;
}

}  // namespace tpu::driver::worker
