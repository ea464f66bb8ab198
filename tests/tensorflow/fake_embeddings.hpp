// What fake_embeddings.cpp and its test have in common.
#pragma once

#include <atomic>

namespace tpu::test {

/// What the library is to do.
struct FakeEmbeddings {
  std::atomic<int> programs = 0;         ///< of the tables, made so far
  std::atomic<bool> held = false;        ///< programs are not finished meanwhile
  std::atomic<int> waiting = 0;          ///< programs that are not finished for that reason
  std::atomic<bool> refused = false;     ///< a program is an error
  std::atomic<bool> host_fails = false;  ///< it gives programs nothing
};
using FakeEmbeddingsFunction = FakeEmbeddings*();
/// That of a program's transfer that takes an array of the infeed.
inline constexpr char kInfeedChannel = 100;
inline constexpr char kFakeEmbeddingsFunction[] = "tpuboard_fake_embeddings";

}  // namespace tpu::test

extern "C" tpu::test::FakeEmbeddings* tpuboard_fake_embeddings();
