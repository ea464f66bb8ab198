// Programs of eight replicas whose devices ask for a launch one by one, as PyTorch/XLA does: no
// call waits, the launch is submitted with the last of them, and all else comes in the order of
// the calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "plugin_calls.hpp"

namespace tpu::test {
namespace {

using testing::HasSubstr;

constexpr int kReplicas = 8;
constexpr size_t kElements = 256;

// One replica's side of a launch.
struct Asked {
  std::vector<PJRT_Buffer*> results;
  PJRT_Event* end = nullptr;
};

class PjrtReplicas : public testing::Test {
 protected:
  void SetUp() override { client_ = make_client(); }

  PJRT_LoadedExecutable* compiled(const std::string& name) {
    const auto [executable, outcome] =
        compile(client_, graph("data/" + name + ".mlirbc"), "mlir", replicas(kReplicas));
    EXPECT_EQ(outcome.text, "");
    return executable;
  }

  PJRT_Buffer* filled(int device, float value, size_t elements = kElements) {
    const auto [buffer, outcome] =
        upload(client_, device_of(client_, device), std::vector<float>(elements, value),
               {static_cast<int64_t>(elements)});
    EXPECT_EQ(outcome.text, "");
    return buffer;
  }

  Launch try_ask(PJRT_LoadedExecutable* executable, int device,
                 const std::vector<PJRT_Buffer*>& arguments, size_t results = 2) {
    return submit(executable, {arguments}, results, args_of<PJRT_ExecuteOptions>(),
                  device_of(client_, device));
  }

  Asked ask(PJRT_LoadedExecutable* executable, int device,
            const std::vector<PJRT_Buffer*>& arguments, size_t results = 2) {
    const Launch launch = try_ask(executable, device, arguments, results);
    EXPECT_EQ(launch.outcome.text, "");
    return {launch.results[0], launch.ends[0]};
  }

  PJRT_Client* client_ = nullptr;
};

// What a step of replica_step.mlirbc makes of w, where replica r has x = r + 1.
float gradient(const std::vector<float>& w) {
  float sum = 0;
  for (int r = 0; r < kReplicas; ++r) {
    sum += w[static_cast<size_t>(r)] * static_cast<float>(r + 1);
  }
  return sum;
}

std::vector<float> all(float value, size_t elements = kElements) {
  return std::vector<float>(elements, value);
}

TEST_F(PjrtReplicas, ThatDoNothingTogetherRunAProgramOfOneCoreEach) {
  const auto [program, compiling] =
      compile(client_, graph("data/one_op/add.mlirbc"), "mlir", replicas(kReplicas));
  ASSERT_EQ(compiling.text, "");
  auto devices = args_of<PJRT_LoadedExecutable_AddressableDevices_Args>();
  devices.executable = program;
  TPU_PJRT_OK(PJRT_LoadedExecutable_AddressableDevices, devices);
  EXPECT_EQ(devices.num_addressable_devices, 8U);
  auto count = args_of<PJRT_Executable_NumReplicas_Args>();
  count.executable = executable_of(program);
  TPU_PJRT_OK(PJRT_Executable_NumReplicas, count);
  EXPECT_EQ(count.num_replicas, 8U);
  std::vector<std::vector<PJRT_Buffer*>> arguments;
  for (int r = 0; r < kReplicas; ++r) {
    std::vector<PJRT_Buffer*>& own = arguments.emplace_back();
    for (const float value : {1.0F, static_cast<float>(r)}) {
      own.push_back(upload(client_, device_of(client_, r), all(value, 64 * 256), {64, 256}).first);
    }
  }
  const Asked third = ask(program, 3, arguments[3], 1);  // waits for nobody
  EXPECT_EQ(await(third.end).text, "");
  EXPECT_EQ(download(third.results[0]), all(4, 64 * 256));
  const auto results = execute(program, arguments, 1);  // all in one call
  for (int r = 0; r < kReplicas; ++r) {
    EXPECT_EQ(download(results[static_cast<size_t>(r)][0]),
              all(1.0F + static_cast<float>(r), 64 * 256));
  }
}

// Every replica has weights of its own: a program that took them as equal would give all the same.
TEST_F(PjrtReplicas, ALaunchBeginsWithTheLastAndAllThatFollowsComesInOrder) {
  PJRT_LoadedExecutable* const step = compiled("replica_step");
  std::vector<float> w(kReplicas);
  std::vector<std::vector<float>> early(kReplicas);
  std::vector<Asked> last(kReplicas);
  std::vector<PJRT_Event*> ends, reads;
  std::vector<float> losses;
  for (int r = 0; r < kReplicas; ++r) {
    w[static_cast<size_t>(r)] = static_cast<float>(10 * r);
  }
  for (int r = 0; r < kReplicas; ++r) {  // one thread, which no call may hold up
    const auto at = static_cast<size_t>(r);
    PJRT_Buffer* const x = filled(r, static_cast<float>(r + 1));
    const Asked first = ask(step, r, {filled(r, w[at]), x});
    EXPECT_FALSE(r < kReplicas - 1 && is_ready(first.end)) << r;
    reads.push_back(start_download(first.results[0], early[at]));
    last[at] = ask(step, r, {first.results[0], x});  // takes over what is still to come
    auto deleted = args_of<PJRT_Buffer_IsDeleted_Args>();
    deleted.buffer = first.results[0];
    TPU_PJRT_OK(PJRT_Buffer_IsDeleted, deleted);
    EXPECT_TRUE(deleted.is_deleted);
    ends.push_back(first.end);
    destroy(first.results[0]);
    destroy(first.results[1]);
  }
  for (PJRT_Event* event : ends) {
    EXPECT_EQ(await(event).text, "");
  }
  const float first = gradient(w);
  for (size_t r = 0; r < kReplicas; ++r) {
    EXPECT_EQ(await(reads[r]).text, "");
    w[r] -= first;
    EXPECT_EQ(early[r], all(w[r])) << r;
  }
  const float second = gradient(w);
  for (size_t r = 0; r < kReplicas; ++r) {
    EXPECT_EQ(await(last[r].end).text, "");
    EXPECT_EQ(download(last[r].results[0]), all(w[r] - second)) << r;
    EXPECT_EQ(download(last[r].results[1])[0], w[r] * static_cast<float>((r + 1) * kElements)) << r;
  }
}

// Large enough for an update that is cut over the cores, were the weights the same on all.
TEST_F(PjrtReplicas, UpdatesOfDifferentWeightsAreNotShared) {
  constexpr size_t kLarge = 1 << 20;
  PJRT_LoadedExecutable* const step = compiled("replica_step_large");
  std::vector<Asked> asked;
  for (int r = kReplicas; r-- > 0;) {
    asked.insert(asked.begin(),
                 ask(step, r, {filled(r, static_cast<float>(r), kLarge), filled(r, 1, kLarge)}));
  }
  for (size_t r = 0; r < kReplicas; ++r) {
    EXPECT_EQ(await(asked[r].end).text, "");
    EXPECT_EQ(download(asked[r].results[0]), all(static_cast<float>(r) - 28, kLarge)) << r;
  }
}

TEST_F(PjrtReplicas, OtherWorkOfADeviceWaitsBehindIt) {
  PJRT_LoadedExecutable* const step = compiled("replica_step");
  PJRT_LoadedExecutable* const largest = compiled("replica_step_max");
  const auto [alone, compiling] =
      compile(client_, graph("data/replica_negate.mlirbc"), "mlir", replicas(kReplicas));
  ASSERT_EQ(compiling.text, "");
  std::vector<Asked> asked;
  std::vector<std::vector<float>> read(kReplicas);
  std::vector<PJRT_Event*> reads;
  PJRT_Buffer* elsewhere = nullptr;
  for (int r = 0; r < kReplicas; ++r) {
    const Asked first = ask(step, r, {filled(r, 1), filled(r, 1)});
    const Asked negated = ask(alone, r, {first.results[0]}, 1);
    EXPECT_FALSE(r < kReplicas - 1 && is_ready(negated.end)) << r;
    if (r == 0) {
      auto copy = args_of<PJRT_Buffer_CopyToDevice_Args>();
      copy.buffer = negated.results[0];
      copy.dst_device = device_of(client_, 7);
      TPU_PJRT_OK(PJRT_Buffer_CopyToDevice, copy);
      elsewhere = copy.dst_buffer;
    }
    asked.push_back(ask(largest, r, {negated.results[0], filled(r, static_cast<float>(r))}));
    reads.push_back(start_download(asked.back().results[0], read[static_cast<size_t>(r)]));
    auto remove = args_of<PJRT_Buffer_Delete_Args>();
    remove.buffer = first.results[1];
    TPU_PJRT_OK(PJRT_Buffer_Delete, remove);
  }
  for (size_t r = 0; r < kReplicas; ++r) {  // w = -(1 - 8) = 7; w - max(7 r)
    EXPECT_EQ(await(reads[r]).text, "");
    EXPECT_EQ(read[r], all(7 - 49)) << r;
    EXPECT_EQ(await(asked[r].end).text, "");
  }
  EXPECT_EQ(download(elsewhere), all(7));
}

TEST_F(PjrtReplicas, ThatLaunchDifferentProgramsGetAnErrorWithBoth) {
  PJRT_LoadedExecutable* const step = compiled("replica_step");
  PJRT_LoadedExecutable* const largest = compiled("replica_step_max");
  std::vector<Asked> asked;
  for (int r = 0; r < kReplicas; ++r) {
    asked.push_back(ask(r == 3 ? largest : step, r, {filled(r, 1), filled(r, 1)}));
  }
  for (size_t r = 0; r < kReplicas; ++r) {
    const Outcome end = await(asked[r].end);
    EXPECT_EQ(end.code, PJRT_Error_Code_INVALID_ARGUMENT) << r;
    EXPECT_THAT(end.text, HasSubstr("launch 1 of replica_step on TPU:0, "));
    EXPECT_THAT(end.text, HasSubstr("replica 0 and replica 3 have `add` and `maximum` at the same "
                                    "place"));
    auto ready = args_of<PJRT_Buffer_ReadyEvent_Args>();
    ready.buffer = asked[r].results[0];
    TPU_PJRT_OK(PJRT_Buffer_ReadyEvent, ready);
    EXPECT_EQ(await(ready.event).text, end.text);
  }
  for (int r = 0; r < kReplicas; ++r) {  // the next launch is another one
    asked[static_cast<size_t>(r)] = ask(step, r, {filled(r, 1), filled(r, 1)});
  }
  for (const Asked& each : asked) {
    EXPECT_EQ(await(each.end).text, "");
  }
}

// Four programs that differ by their rank: launched again and again, they are made one once.
TEST_F(PjrtReplicas, ThatDifferByTheirRankMeetInOneProgram) {
  constexpr int kRanks = 4;
  std::vector<PJRT_LoadedExecutable*> programs;
  for (int r = 0; r < kRanks; ++r) {
    const auto [program, compiling] =
        compile(client_, graph("data/replica_rank_" + std::to_string(r) + ".mlirbc"), "mlir",
                replicas(kRanks));
    ASSERT_EQ(compiling.text, "");
    programs.push_back(program);
  }
  std::vector<float> want;
  for (int r = 0; r < kRanks; ++r) {
    const auto rank = static_cast<float>(r);
    for (const float factor : {rank + 0.5F, rank + 0.5F, 1.0F, 1.0F}) {
      want.push_back((10 * rank + rank) * factor);
    }
  }
  for (int launch = 0; launch < 3; ++launch) {
    std::vector<Asked> asked;
    for (int r = 0; r < kRanks; ++r) {
      std::vector<PJRT_Buffer*> arguments;
      if (r >= 2) {  // its program has the rank as an argument
        arguments.push_back(
            upload(client_, device_of(client_, r), {static_cast<float>(r)}, {}).first);
      }
      arguments.push_back(filled(r, static_cast<float>(10 * r), 4));
      asked.push_back(ask(programs[static_cast<size_t>(r)], r, arguments));
    }
    for (size_t r = 0; r < kRanks; ++r) {
      EXPECT_EQ(await(asked[r].end).text, "");
      EXPECT_EQ(download(asked[r].results[0]), want);
      const auto own = want.begin() + static_cast<ptrdiff_t>(4 * r);
      EXPECT_EQ(download(asked[r].results[1]), std::vector<float>(own, own + 4));
    }
  }
}

// Devices 0 to 3 belong to both programs. TPU:0 launches the smaller one first, TPU:1 the other.
TEST_F(PjrtReplicas, GroupsThatWouldWaitForEachOtherGetAnError) {
  PJRT_LoadedExecutable* const eight = compiled("replica_step");
  const auto [four, compiling] =
      compile(client_, graph("data/replica_step_max.mlirbc"), "mlir", replicas(4));
  ASSERT_EQ(compiling.text, "");
  std::vector<Asked> small, large;
  small.push_back(ask(four, 0, {filled(0, 1), filled(0, 1)}));
  large.push_back(ask(eight, 0, {filled(0, 1), filled(0, 1)}));
  large.push_back(ask(eight, 1, {filled(1, 1), filled(1, 1)}));
  for (int r = 1; r < 4; ++r) {
    small.push_back(ask(four, r, {filled(r, 1), filled(r, 1)}));
  }
  for (int r = 2; r < kReplicas; ++r) {
    large.push_back(ask(eight, r, {filled(r, 1), filled(r, 1)}));
  }
  for (const Asked& each : small) {
    EXPECT_THAT(await(each.end).text, HasSubstr("different orders"));
  }
  for (const Asked& each : large) {
    EXPECT_EQ(await(each.end).text, "");
  }
}

TEST_F(PjrtReplicas, WhatOneCannotLaunchFailsForAll) {
  PJRT_LoadedExecutable* const step = compiled("replica_step");
  std::vector<Asked> asked;
  for (int r = 0; r < kReplicas; ++r) {
    if (r != 5) {
      asked.push_back(ask(step, r, {filled(r, 1), filled(r, 1)}));
      continue;
    }
    const Launch wrong = try_ask(step, r, {filled(r, 1, 4), filled(r, 1)});
    EXPECT_THAT(wrong.outcome.text, HasSubstr("argument 0 on TPU:5 is f32[4], must be f32[256]"));
  }
  for (const Asked& each : asked) {
    const Outcome end = await(each.end);
    EXPECT_THAT(end.text, HasSubstr("launch 1 of replica_step"));
    EXPECT_THAT(end.text, HasSubstr("TPU:5 could not launch it: argument 0 on TPU:5 is f32[4]"));
  }
}

TEST_F(PjrtReplicas, LaunchesGoOnWhenTheirHandlesAreGone) {
  std::vector<std::vector<float>> read(kReplicas);
  std::vector<PJRT_Event*> reads;
  for (int r = 0; r < kReplicas; ++r) {
    PJRT_LoadedExecutable* const step = compiled("replica_step");  // each has its own handle
    PJRT_Buffer* const w = filled(r, 2);
    PJRT_Buffer* const x = filled(r, 1);
    const Asked asked = ask(step, r, {w, x});
    reads.push_back(start_download(asked.results[0], read[static_cast<size_t>(r)]));
    auto remove = args_of<PJRT_LoadedExecutable_Delete_Args>();
    remove.executable = step;
    TPU_PJRT_OK(PJRT_LoadedExecutable_Delete, remove);
    auto discard = args_of<PJRT_Buffer_Delete_Args>();
    discard.buffer = x;
    TPU_PJRT_OK(PJRT_Buffer_Delete, discard);
    destroy(step);
    destroy(w);
    destroy(x);
    destroy(asked.results[0]);
    destroy(asked.results[1]);
    destroy(asked.end);
  }
  for (size_t r = 0; r < kReplicas; ++r) {
    EXPECT_EQ(await(reads[r]).text, "");
    EXPECT_EQ(read[r], all(2 - 16)) << r;
  }
}

TEST_F(PjrtReplicas, AClientThatIsDestroyedEndsWhatWaits) {
  PJRT_LoadedExecutable* const step = compiled("replica_step");
  const Asked asked = ask(step, 0, {filled(0, 1), filled(0, 1)});
  destroy(client_);
  EXPECT_THAT(await(asked.end).text, HasSubstr("the client was destroyed"));
  client_ = make_client();
  PJRT_LoadedExecutable* const again = compiled("replica_step");
  std::vector<Asked> all_asked;
  for (int r = 0; r < kReplicas; ++r) {
    all_asked.push_back(ask(again, r, {filled(r, 1), filled(r, 1)}));
  }
  for (const Asked& each : all_asked) {
    EXPECT_EQ(await(each.end).text, "");
  }
}

class PjrtReplicaLimit : public PjrtReplicas {
 protected:
  void SetUp() override {
    static const bool in_time = clients_made == 0;
    if (!in_time) {
      GTEST_SKIP() << "a process reads the limit once: run these tests in one of their own";
    }
    ::setenv("TPUBOARD_REPLICA_LIMIT", "0.4", 1);
    PjrtReplicas::SetUp();
    ::unsetenv("TPUBOARD_REPLICA_LIMIT");
  }
};

TEST_F(PjrtReplicaLimit, AReplicaThatNeverComesIsNamedAndTheNextLaunchGoesOn) {
  PJRT_LoadedExecutable* const step = compiled("replica_step");
  std::vector<Asked> asked;
  for (int r = 0; r < kReplicas; ++r) {
    if (r != 2 && r != 5) {
      asked.push_back(ask(step, r, {filled(r, 1), filled(r, 1)}));
    }
  }
  for (const Asked& each : asked) {
    const Outcome end = await(each.end);
    EXPECT_EQ(end.code, PJRT_Error_Code_DEADLINE_EXCEEDED) << end.text;
    EXPECT_THAT(end.text, HasSubstr("launch 1 of replica_step on"));
    EXPECT_THAT(end.text,
                HasSubstr("replica 2 (TPU:2), replica 5 (TPU:5) did not launch it within 0.4 s"));
  }
  for (const int r : {5, 2}) {  // too late
    EXPECT_THAT(await(ask(step, r, {filled(r, 1), filled(r, 1)}).end).text,
                HasSubstr("did not launch it"));
  }
  asked.clear();
  for (int r = 0; r < kReplicas; ++r) {
    asked.push_back(ask(step, r, {filled(r, 1), filled(r, 1)}));
  }
  for (const Asked& each : asked) {
    EXPECT_EQ(await(each.end).text, "");
  }
}

// A replica that works with its device is not late.
TEST_F(PjrtReplicaLimit, WorkOfTheMissingReplicaCounts) {
  PJRT_LoadedExecutable* const step = compiled("replica_step");
  std::vector<Asked> asked;
  for (int r = 0; r < kReplicas - 1; ++r) {
    asked.push_back(ask(step, r, {filled(r, 1), filled(r, 1)}));
  }
  for (int i = 0; i < 60; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    destroy(filled(kReplicas - 1, 1));
  }
  asked.push_back(ask(step, kReplicas - 1, {filled(kReplicas - 1, 1), filled(kReplicas - 1, 1)}));
  for (const Asked& each : asked) {
    EXPECT_EQ(await(each.end).text, "");
  }
}

void exit_while_a_replica_is_missing() {
  PJRT_Client* const client = make_client();
  const auto [step, compiling] =
      compile(client, graph("data/replica_step.mlirbc"), "mlir", replicas(kReplicas));
  std::vector<PJRT_Buffer*> arguments;
  for (int i = 0; i < 2; ++i) {
    arguments.push_back(upload(client, device_of(client, 0), all(1), {kElements}).first);
  }
  const Launch launch =
      submit(step, {arguments}, 2, args_of<PJRT_ExecuteOptions>(), device_of(client, 0));
  std::exit(launch.outcome.text.empty() ? 7 : 1);
}

TEST(PjrtReplicaExit, AnIncompleteLaunchDoesNotKeepTheProcessFromEnding) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_while_a_replica_is_missing(), testing::ExitedWithCode(7), "");
}

// As torch's runtime does: calls of all replicas come from a pool of few threads, in any order
// between replicas, and each replica goes on before its launch has begun.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int t = 0; t < threads; ++t) {
      threads_.emplace_back([this] { work(); });
    }
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  // Tasks of one replica are done in their order.
  void add(size_t replica, std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.resize(std::max(tasks_.size(), replica + 1));
      busy_.resize(tasks_.size());
      tasks_[replica].push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void work() {
    std::mt19937 random(static_cast<unsigned>(threads_.size()));
    std::unique_lock lock(mutex_);
    for (;;) {
      std::vector<size_t> ready;
      bool left = false;
      for (size_t r = 0; r < tasks_.size(); ++r) {
        left = left || !tasks_[r].empty();
        if (!tasks_[r].empty() && !busy_[r]) {
          ready.push_back(r);
        }
      }
      if (ready.empty() && ending_ && !left) {
        return;
      }
      if (ready.empty()) {
        changed_.wait(lock);
        continue;
      }
      const size_t r = ready[random() % ready.size()];
      const std::function<void()> task = std::move(tasks_[r].front());
      tasks_[r].pop_front();
      busy_[r] = true;
      lock.unlock();
      task();
      lock.lock();
      busy_[r] = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<std::function<void()>>> tasks_;
  std::vector<char> busy_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

TEST_F(PjrtReplicas, APoolOfTwoThreadsServesEight) {
  constexpr int kSteps = 24;
  PJRT_LoadedExecutable* const step = compiled("replica_step");
  PJRT_LoadedExecutable* const largest = compiled("replica_step_max");
  std::vector<PJRT_Buffer*> w(kReplicas), x(kReplicas), zero(kReplicas);
  std::vector<std::vector<std::vector<float>>> read(kReplicas,
                                                    std::vector<std::vector<float>>(kSteps));
  std::vector<std::vector<PJRT_Event*>> reads(kReplicas);
  for (int r = 0; r < kReplicas; ++r) {
    w[static_cast<size_t>(r)] = filled(r, static_cast<float>(r));
    x[static_cast<size_t>(r)] = filled(r, 0.0625F);
    zero[static_cast<size_t>(r)] = filled(r, 0);
  }
  {
    Pool pool(2);
    for (int s = 0; s < kSteps; ++s) {
      for (int r = 0; r < kReplicas; ++r) {
        const auto at = static_cast<size_t>(r);
        pool.add(at, [&, r, s, at] {
          const bool adds = s % 3 != 2;
          const Asked asked = ask(adds ? step : largest, r, {w[at], adds ? x[at] : zero[at]});
          destroy(w[at]);
          w[at] = asked.results[0];
          destroy(asked.results[1]);
          destroy(asked.end);
          reads[at].push_back(start_download(w[at], read[at][static_cast<size_t>(s)]));
        });
      }
    }
  }
  std::vector<float> want(kReplicas);
  for (size_t r = 0; r < kReplicas; ++r) {
    want[r] = static_cast<float>(r);
  }
  for (size_t s = 0; s < kSteps; ++s) {
    float sum = 0;
    for (const float value : want) {
      sum += value * 0.0625F;
    }
    for (size_t r = 0; r < kReplicas; ++r) {
      want[r] -= s % 3 != 2 ? sum : 0;
      EXPECT_EQ(await(reads[r][s]).text, "");
      ASSERT_EQ(read[r][s], all(want[r])) << "step " << s << ", replica " << r;
    }
  }
}

}  // namespace
}  // namespace tpu::test
