// Residency: what is evicted and what never is; planning that is given up leaves no trace.
#include "plan/residency.hpp"

#include <gtest/gtest.h>

#include <random>

#include "planning.hpp"

namespace tpu::compiler::test {
namespace {

// VMEM of 64 KiB, so that four arrays of 16 KiB fill it. Kernels read and write as told.
class Memory {
 public:
  // `reads[i]`: arguments that kernel i reads.
  Memory(int arguments, const std::vector<std::vector<int>>& reads) {
    for (int i = 0; i < arguments; ++i) {
      args.push_back(b_.arg(f32({4096})));
    }
    for (size_t i = 0; i < reads.size(); ++i) {
      Kernel k(KernelClass::kLoop);
      k.order = static_cast<int>(i);
      for (const int a : reads[i]) {
        k.reads.push_back(args[static_cast<size_t>(a)]);
      }
      made.push_back(b_.op(Kind::kNegate, {args[0]}, f32({4096})));
      k.writes = {made.back()};
      program_.kernels.push_back(std::move(k));
    }
    const Module& m = b_.done({made.back()});
    slots_ = make_slots(m, program_, board_.hbm.gib_per_core << 30);
    memory.emplace(program_, slots_, VirtualPads{}, board_, 16 * kKib);
  }

  Buffer& arg(int i) { return memory->at(args[static_cast<size_t>(i)]); }
  Buffer& result(int i) { return memory->at(made[static_cast<size_t>(i)]); }

  std::vector<Value*> args, made;
  std::optional<Residency> memory;

 private:
  GraphBuilder b_;
  KernelProgram program_;
  const spec::BoardParams board_ = spec::load_board("v3_8", {"core.vmem_kib=64"});
  Slots slots_;
};

std::vector<std::string> text(const std::vector<Move>& moves) {
  std::vector<std::string> out;
  for (const Move& m : moves) {
    out.push_back(std::to_string(m.src.offset) + " > " + std::to_string(m.dst.offset) + " " +
                  std::to_string(m.bytes));
  }
  return out;
}

TEST(Residency, TheFarthestNextReadGoes) {
  Memory m(3, {{}, {1}, {2}, {0}});
  m.memory->enter(0, 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(load(*m.memory, m.arg(i), 0));
  }
  ASSERT_TRUE(m.memory->take(16 * kKib));
  EXPECT_EQ(m.memory->take_moves().size(), 3u);
  ASSERT_TRUE(m.memory->take(16 * kKib));
  EXPECT_LT(m.arg(0).vmem, 0);
  EXPECT_GE(m.arg(1).vmem, 0);
  EXPECT_TRUE(m.memory->take_moves().empty()) << "HBM has what an argument holds";
  ASSERT_TRUE(m.memory->take(16 * kKib));
  EXPECT_LT(m.arg(2).vmem, 0);
}

TEST(Residency, WhatHbmLacksIsStoredIfItIsReadAgain) {
  Memory m(1, {{0}, {0}});
  m.result(0).reads = {1};
  ASSERT_TRUE(m.memory->place(m.result(0)));
  ASSERT_TRUE(m.memory->place(m.result(1)));  // nobody reads it
  ASSERT_TRUE(m.memory->take(32 * kKib));
  m.memory->enter(0, 7);
  ASSERT_TRUE(m.memory->take(32 * kKib));
  const std::vector<Move> moves = m.memory->take_moves();
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].bytes, 16 * kKib);
  EXPECT_EQ(moves[0].op_id, 7u);
  EXPECT_TRUE(m.result(0).in_hbm);
  EXPECT_LT(m.result(1).vmem, 0);
  EXPECT_FALSE(m.result(1).in_hbm);
}

TEST(Residency, PinnedAndLockedBuffersStay) {
  Memory m(4, {{}, {0}, {1}, {2}, {3}});
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(load(*m.memory, m.arg(i), 0));
  }
  m.memory->pins().pin({&m.arg(3)});
  EXPECT_TRUE(lock(*m.memory, m.arg(2)));
  EXPECT_FALSE(lock(*m.memory, m.arg(1))) << "beyond the limit";
  ASSERT_TRUE(m.memory->take(16 * kKib));
  EXPECT_LT(m.arg(1).vmem, 0);
  ASSERT_TRUE(m.memory->take(16 * kKib));
  EXPECT_LT(m.arg(0).vmem, 0);
  EXPECT_FALSE(m.memory->take(16 * kKib));
  EXPECT_GE(m.arg(2).vmem, 0);
  EXPECT_GE(m.arg(3).vmem, 0);
}

TEST(Residency, WhatDoesNotFitEvictsNothing) {
  Memory m(3, {{}, {0, 1, 2}});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(load(*m.memory, m.arg(i), 0));
  }
  m.memory->take_moves();
  m.memory->pins().pin({&m.arg(1)});
  EXPECT_FALSE(m.memory->take(64 * kKib));
  EXPECT_GE(m.arg(0).vmem, 0);
  EXPECT_GE(m.arg(2).vmem, 0);
  EXPECT_TRUE(m.memory->take_moves().empty());
}

// Does what a plan may do. Addresses that it has taken are in `taken`.
void act(Memory& m, std::mt19937& random, std::vector<int64_t>& taken) {
  const int i = static_cast<int>(random() % 6);
  Buffer& b = random() % 2 == 0 ? m.arg(i) : m.result(i);
  switch (random() % 6) {
    case 0:
    case 1:
      if (const auto address = m.memory->take(static_cast<int64_t>(random() % 24) * kKib)) {
        taken.push_back(*address);
      }
      break;
    case 2:
      if (b.in_hbm) {
        load(*m.memory, b, 1);
      }
      break;
    case 3:
      if (b.vmem < 0 && !b.in_hbm) {
        m.memory->place(b);
      }
      break;
    case 4:
      leave_vmem(*m.memory, b, 2);
      break;
    default:
      if (!taken.empty()) {
        m.memory->give(taken.back());
        taken.pop_back();
      }
  }
}

std::string place_text(const Buffer& b) {
  return std::to_string(b.slot) + " " + std::to_string(b.offset) + " " + std::to_string(b.vmem) +
         (b.in_hbm ? " home" : "") + (b.scratch ? " scratch" : "") + (b.locked ? " locked" : "");
}

// Of VMEM that no buffer and no caller has, in units of 512 bytes.
std::set<int64_t> free_addresses(Memory& m) {
  std::set<int64_t> out;
  for (int i = 0; i < 6; ++i) {
    m.memory->pins().add(m.arg(i));
    m.memory->pins().add(m.result(i));
  }
  while (const auto address = m.memory->take(1)) {
    out.insert(*address);
  }
  return out;
}

TEST(Residency, ADroppedReservationLeavesNoTrace) {
  const std::vector<std::vector<int>> reads = {{0}, {1, 2}, {3}, {4, 5, 0}, {1}, {2, 3}};
  for (unsigned seed = 0; seed < 200; ++seed) {
    Memory m(6, reads), twin(6, reads);
    std::mt19937 random(seed), same(seed);
    std::vector<int64_t> taken, twin_taken;
    for (int i = 0; i < 12; ++i) {
      act(m, random, taken);
      act(twin, same, twin_taken);
    }
    {
      std::mt19937 other(seed + 1000);
      std::vector<int64_t> inside = taken;
      Reservation outer(*m.memory);
      for (int i = 0; i < 8; ++i) {
        act(m, other, inside);
      }
      {
        Reservation inner(*m.memory);
        for (int i = 0; i < 8; ++i) {
          act(m, other, inside);
        }
        inner.keep();
      }
      m.memory->pins().pin({&m.arg(0)});
      m.memory->give_home(m.result(4));
    }
    EXPECT_EQ(m.memory->vmem_peak(), twin.memory->vmem_peak());
    ASSERT_EQ(text(m.memory->take_moves()), text(twin.memory->take_moves())) << "seed " << seed;
    for (int i = 0; i < 6; ++i) {
      ASSERT_EQ(place_text(m.arg(i)), place_text(twin.arg(i))) << "seed " << seed;
      ASSERT_EQ(place_text(m.result(i)), place_text(twin.result(i))) << "seed " << seed;
    }
    ASSERT_EQ(free_addresses(m), free_addresses(twin)) << "seed " << seed;
    // Homes, too: the next temporary gets the same one.
    m.memory->give_home(m.result(5));
    twin.memory->give_home(twin.result(5));
    ASSERT_EQ(m.result(5).offset, twin.result(5).offset) << "seed " << seed;
  }
}

// Values that take each other's place, share an allocation, are finished or held.
TEST(Residency, ADroppedReservationPutsBackWhoLiesWhere) {
  Memory m(2, {{0}, {1}, {0}, {1}});
  ASSERT_TRUE(load(*m.memory, m.arg(0), 0));
  m.memory->give_home(m.result(0));
  const int64_t area = *m.memory->take(8 * kKib);
  m.result(3).vmem = area;
  m.memory->shared().add(area, area);
  const std::string before = place_text(m.arg(0)) + place_text(m.result(0));
  m.memory->take_moves();
  int64_t other = -1;
  {
    Reservation attempt(*m.memory);
    take_vmem(*m.memory, m.arg(0), m.result(1));
    take_home(*m.memory, m.result(0), m.result(2));
    finish_result(*m.memory, m.result(2), 0);
    m.memory->pins().held.insert(&m.arg(1));
    other = *m.memory->take(8 * kKib);
    m.memory->drop(m.result(3));
    m.memory->touch(m.arg(1));
    m.arg(1).vmem = other;
    m.memory->shared().add(other, other);
  }
  EXPECT_EQ(place_text(m.arg(0)) + place_text(m.result(0)), before);
  EXPECT_LT(m.result(1).vmem, 0);
  EXPECT_LT(m.result(2).slot, 0);
  EXPECT_FALSE(m.result(2).in_hbm);
  EXPECT_TRUE(m.memory->pins().held.empty());
  EXPECT_LT(m.arg(1).vmem, 0);
  EXPECT_FALSE(m.memory->shared().contains(other));
  ASSERT_EQ(m.result(3).vmem, area);
  EXPECT_TRUE(m.memory->shared().contains(area));
  m.memory->drop(m.result(3));
  EXPECT_FALSE(m.memory->shared().contains(area));
}

// What regions of control flow do: locks, homes of carried values, temporaries that die.
TEST(Residency, ADroppedReservationPutsBackLocksAndTheDead) {
  Memory m(2, {{0}, {1}, {0}, {1}});
  Residency& memory = *m.memory;
  ASSERT_TRUE(memory.place(m.result(0)));
  memory.store(m.result(0), 0);
  ASSERT_TRUE(lock(memory, m.result(0)));
  const std::string before = place_text(m.result(0)) + place_text(m.result(1));
  memory.take_moves();
  {
    Reservation attempt(memory);
    unlock(memory, m.result(0));
    ASSERT_TRUE(load(memory, m.arg(0), 0));
    ASSERT_TRUE(lock(memory, m.arg(0)));
    memory.locks().homes.insert(m.arg(0).vmem);
    memory.give_home(m.result(1));
    mark_home(memory, m.result(1));
    memory.enter(3, 0);
    memory.drop_dead();
    ASSERT_LT(m.result(0).vmem, 0);
    ASSERT_FALSE(m.result(0).scratch) << "its home has gone back";
  }
  EXPECT_EQ(place_text(m.result(0)) + place_text(m.result(1)), before);
  EXPECT_TRUE(memory.locks().any());
  EXPECT_TRUE(memory.locks().homes.empty());
  unlock(memory, m.result(0));
  EXPECT_FALSE(memory.locks().any());
  memory.drop_dead();
  EXPECT_LT(m.result(0).vmem, 0) << "it is dead as before";
  EXPECT_FALSE(m.result(0).scratch);
}

TEST(Residency, AKeptReservationStays) {
  Memory m(1, {{0}});
  {
    Reservation r(*m.memory);
    ASSERT_TRUE(load(*m.memory, m.arg(0), 0));
    r.keep();
  }
  EXPECT_GE(m.arg(0).vmem, 0);
  EXPECT_EQ(m.memory->take_moves().size(), 1u);
}

}  // namespace
}  // namespace tpu::compiler::test
