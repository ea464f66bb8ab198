// Program ids of cores, and which program makes room for others.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "src/residency/program_ids.hpp"
#include "src/residency/resident_programs.hpp"

namespace tpu::driver {
namespace {

TEST(ProgramIds, EachCoreHasItsOwnAndTheyCanRunOut) {
  ProgramIds ids(2);
  for (uint16_t i = 0; i < TPU_MAX_PROGRAMS; ++i) {
    ASSERT_EQ(ids.take(1), i);
  }
  EXPECT_EQ(ids.take(1), std::nullopt);
  EXPECT_EQ(ids.take(0), 0);
  ids.give_back(1, 3);
  EXPECT_EQ(ids.take(1), 3);
}

TEST(ProgramIds, AResidenceGivesItsIdsBackWhereverItGoesAway) {
  const auto ids = std::make_shared<ProgramIds>(3);
  auto residence = std::make_shared<Residence>();
  residence->ids = ids;
  residence->parts.resize(3);
  for (int device = 0; device < 2; ++device) {
    Residence::Part& part = residence->parts[static_cast<size_t>(device)];
    part.device = device;
    part.id = *ids->take(device);
    part.has_id = true;
    part.sent = device == 1;
  }
  std::thread([&] { residence.reset(); }).join();
  EXPECT_EQ(ids->take(1), 1) << "an id is in use until the core has forgotten it";
  const auto first = ids->next_retired();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->device, 0);
  EXPECT_FALSE(first->sent);
  const auto second = ids->next_retired();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->device, 1);
  EXPECT_TRUE(second->sent);
  EXPECT_FALSE(ids->next_retired()) << "the third core had none";
}

TEST(ProgramIds, AResidenceMayOutliveTheBoard) {
  auto ids = std::make_shared<ProgramIds>(1);
  Residence residence;
  residence.ids = ids;
  residence.parts.resize(1);
  residence.parts[0].has_id = true;
  ids.reset();
  EXPECT_TRUE(residence.ids.expired());
}

std::shared_ptr<LoadedProgram> program_on(std::vector<int> devices) {
  const auto exe = std::make_shared<exe::ExecutableT>();
  auto program = std::make_shared<LoadedProgram>(exe, std::move(devices));
  program->residence = std::make_shared<Residence>();
  return program;
}

TEST(ResidentPrograms, TheOneUsedLongestAgoMakesRoom) {
  ResidentPrograms programs;
  const auto first = program_on({0});
  const auto second = program_on({0, 1});
  const auto third = program_on({1});
  for (const auto& each : {first, second, third}) {
    programs.add(each);
    programs.use(*each);
  }
  programs.use(*first);
  ASSERT_TRUE(programs.evict(0));
  EXPECT_EQ(second->residence, nullptr);
  ASSERT_TRUE(programs.evict(0));
  EXPECT_EQ(first->residence, nullptr);
  EXPECT_FALSE(programs.evict(0));
  EXPECT_NE(third->residence, nullptr) << "it is on another core";
}

TEST(ResidentPrograms, WhatALaunchHoldsStays) {
  ResidentPrograms programs;
  auto program = program_on({0});
  programs.add(program);
  auto launch = program->residence;
  EXPECT_FALSE(programs.evict(0));
  launch.reset();
  EXPECT_EQ(programs.live().size(), 1u);
  program.reset();
  EXPECT_TRUE(programs.live().empty());
  EXPECT_FALSE(programs.evict(0)) << "nobody holds it any more";
}

}  // namespace
}  // namespace tpu::driver
