// Executables: round trip, and refusal of everything damaged, also when the hash has been repaired.
#include "exe/executable.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "tpu/spec/isa.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::exe {
namespace {

using ::testing::HasSubstr;

ExecutableT sample() {
  ExecutableT exe;
  exe.name = "sample";
  exe.isa_version = spec::kIsaVersion;
  exe.board_name = "v3_8";
  exe.board_hash = 42;
  exe.partitions = 8;
  tpu_program_image_header_t head{};
  head.magic = TPU_PROGRAM_MAGIC;
  head.isa_version = exe.isa_version;
  head.header_bytes = sizeof(head);
  head.code_bytes = 8;
  head.slots = 2;
  head.cores = 8;
  head.board_hash = 42;
  exe.image.resize(sizeof(head) + 8);
  std::memcpy(exe.image.data(), &head, sizeof(head));
  exe.image[sizeof(head)] = static_cast<uint8_t>(spec::ScalarOp::kHalt);
  for (int i = 0; i < 2; ++i) {
    auto slot = std::make_unique<SlotT>();
    slot->kind = i == 0 ? SlotKind::argument : SlotKind::result;
    slot->bytes = 512;
    exe.slots.push_back(std::move(slot));
    auto tensor = std::make_unique<TensorT>();
    tensor->elem = Elem::f32;
    tensor->global_dims = {16, 8};
    tensor->local_dims = {2, 8};
    for (int64_t p = 0; p < 8; ++p) {
      tensor->offsets.push_back(2 * p);
      tensor->offsets.push_back(0);
    }
    tensor->slot = static_cast<uint32_t>(i);
    (i == 0 ? exe.args : exe.results).push_back(std::move(tensor));
  }
  return exe;
}

std::string error_of(std::span<const std::byte> bytes) {
  try {
    static_cast<void>(read_executable(bytes));
  } catch (const ExecutableError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Executable, RoundTrip) {
  const std::vector<std::byte> bytes = write_executable(sample());
  const ExecutableT back = read_executable(bytes);
  EXPECT_EQ(back.name, "sample");
  EXPECT_EQ(back.args.at(0)->offsets.size(), 16U);
  EXPECT_EQ(write_executable(back), bytes);
}

// Cores from 256 on are in lists of their own, and executables of fewer are as they were before.
TEST(Executable, KeepsCoresOfAnyNumber) {
  for (const uint16_t first : {uint16_t{248}, uint16_t{300}}) {
    ExecutableT exe = sample();
    std::vector<uint16_t> cores(8);
    std::iota(cores.begin(), cores.end(), first);
    set_cores(exe, cores);
    set_owners(*exe.args[0], cores);
    set_terms(*exe.args[0], cores);
    EXPECT_EQ(exe.wide_cores.empty(), first == 248);
    EXPECT_EQ(exe.args[0]->wide_owned_by.empty(), first == 248);
    EXPECT_EQ(exe.args[0]->wide_terms.empty(), first == 248);
    EXPECT_EQ(exe.cores.empty(), first != 248);
    EXPECT_EQ(cores_of(exe), cores);
    EXPECT_EQ(owners_of(*exe.args[0]), cores);
    EXPECT_EQ(terms_of(*exe.args[0]), cores);
    ExecutableT written = sample();
    set_cores(written, cores);
    EXPECT_EQ(cores_of(read_executable(write_executable(written))), cores);
  }
}

TEST(Executable, RefusesTwoListsOfOneThing) {
  ExecutableT exe = sample();
  set_cores(exe, {0, 1, 2, 3, 4, 5, 6, 300});
  exe.cores = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("two lists of cores"));
  exe = sample();
  exe.args[0]->owned_by = {0};
  exe.args[0]->wide_owned_by = {0};
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("two lists of owners"));
  exe = sample();
  exe.args[0]->terms = {0};
  exe.args[0]->wide_terms = {0};
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("two lists of terms"));
}

TEST(Executable, RefusesTruncationAndFlips) {
  const std::vector<std::byte> bytes = write_executable(sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(error_of(std::span(bytes).first(size)), "no error") << size;
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> bad = bytes;
    bad[i] ^= std::byte{0x10};
    EXPECT_NE(error_of(bad), "no error") << i;
  }
}

TEST(Executable, RefusesAnEmptyPayloadWithARightHash) {
  std::vector<std::byte> bytes = write_executable(sample());
  bytes.resize(48);  // magic, length, hash
  std::fill_n(bytes.begin() + 8, 8, std::byte{0});
  repair_hash(bytes);
  EXPECT_THAT(error_of(bytes), HasSubstr("no payload"));
}

TEST(Executable, RefusesOtherIsaVersionAndImage) {
  ExecutableT exe = sample();
  exe.isa_version += 1;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("ISA version"));
  exe = sample();
  exe.image.pop_back();
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("image size"));
  exe = sample();
  exe.args[0]->slot = 1;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("slot of another kind"));
  exe = sample();
  exe.args[0]->offsets[2] = 15;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("outside the global shape"));
}

// Two values of 512 bytes after one another in 512 bytes of scratch.
ExecutableT with_temporaries() {
  ExecutableT exe = sample();
  auto slot = std::make_unique<SlotT>();
  slot->kind = SlotKind::scratch;
  slot->bytes = 512;
  exe.slots.push_back(std::move(slot));
  reinterpret_cast<tpu_program_image_header_t*>(exe.image.data())->slots = 3;
  exe.ops.push_back(std::make_unique<OpInfoT>());
  for (uint32_t i = 0; i < 2; ++i) {
    auto temporary = std::make_unique<TemporaryT>();
    temporary->bytes = 512;
    temporary->from = 2 * i;
    temporary->to = 2 * i + 1;
    temporary->dims = {16, 8};
    exe.temporaries.push_back(std::move(temporary));
  }
  return exe;
}

TEST(Executable, RefusesTemporariesThatCannotBe) {
  EXPECT_EQ(error_of(write_executable(with_temporaries())), "no error");
  const auto error = [](const std::function<void(TemporaryT&)>& damage) {
    ExecutableT exe = with_temporaries();
    damage(*exe.temporaries[1]);
    return error_of(write_executable(exe));
  };
  EXPECT_THAT(error([](TemporaryT& t) { t.op = 1; }), HasSubstr("op of temporary 1"));
  EXPECT_THAT(error([](TemporaryT& t) { t.to = t.from; }), HasSubstr("times of temporary 1"));
  EXPECT_THAT(error([](TemporaryT& t) { t.from = 0; }), HasSubstr("times of temporary 1"));
  EXPECT_THAT(error([](TemporaryT& t) { t.offset = 4; }), HasSubstr("bytes of temporary 1"));
  EXPECT_THAT(error([](TemporaryT& t) { t.offset = UINT64_MAX; }),
              HasSubstr("bytes of temporary 1"));
  EXPECT_THAT(error([](TemporaryT& t) { t.dims = std::vector<int64_t>(65, 1); }),
              HasSubstr("array of temporary 1"));
  EXPECT_NE(error([](TemporaryT& t) { t.dims = {-1}; }), "no error");
}

// Appends the instructions to the code, the first of which is `halt`, and enters behind that.
ExecutableT with_code(const std::vector<spec::ScalarInsn>& code) {
  ExecutableT exe = sample();
  auto* head = reinterpret_cast<tpu_program_image_header_t*>(exe.image.data());
  head->code_bytes += static_cast<uint32_t>(8 * code.size());
  head->entry_word = 1;
  const auto* bytes = reinterpret_cast<const uint8_t*>(code.data());
  exe.image.insert(exe.image.end(), bytes, bytes + 8 * code.size());
  return exe;
}

spec::ScalarInsn insn(spec::ScalarOp op, int32_t imm = 0) {
  return {static_cast<uint8_t>(op), 0, 0, 0, imm};
}

TEST(Executable, RefusesCallsOfTheHostThatTheTableLacks) {
  using Op = spec::ScalarOp;
  ExecutableT exe = with_code({insn(Op::kMarkb), insn(Op::kHcall, 5), insn(Op::kHalt)});
  const std::string text = "the instruction at word 2 makes host call 5, the table of host calls";
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr(text + " has 0"));
  exe.ops.push_back(std::make_unique<OpInfoT>());
  for (int i = 0; i < 6; ++i) {
    EXPECT_THAT(error_of(write_executable(exe)), HasSubstr(text)) << i;
    exe.host_calls.push_back(std::make_unique<HostCallT>());
  }
  EXPECT_EQ(error_of(write_executable(exe)), "no error");
  exe = with_code({insn(Op::kHcall, -1), insn(Op::kHalt)});
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("makes host call -1"));
}

TEST(Executable, LooksForCallsOfTheHostWhereTheProgramGoes) {
  using Op = spec::ScalarOp;
  const auto call = insn(Op::kHcall, 5), halt = insn(Op::kHalt);
  const auto error = [](const std::vector<spec::ScalarInsn>& code) {
    return error_of(write_executable(with_code(code)));
  };
  EXPECT_EQ(error({halt, call}), "no error");  // a VPU program may look like this
  EXPECT_THAT(error({insn(Op::kBeq, 3), halt, call}), HasSubstr("word 3 makes host call 5"));
  EXPECT_EQ(error({insn(Op::kJmp, 1), call}), "no error");
  // The words of a command are not instructions.
  spec::ScalarInsn command{static_cast<uint8_t>(spec::Opcode::kNop), 0, 2, 0, 0};
  EXPECT_EQ(error({command, call, halt}), "no error");
  EXPECT_THAT(error({command, halt, call}), HasSubstr("word 3 makes host call 5"));
  command.rs1 = 0;  // no length: the sequencer stops there
  EXPECT_EQ(error({command, call}), "no error");
}

TEST(Executable, RefusesUnknownMemories) {
  ExecutableT exe = sample();
  exe.args[0]->memory = MemoryKind::unpinned_host;
  EXPECT_EQ(error_of(write_executable(exe)), "no error");
  exe.args[0]->memory = static_cast<MemoryKind>(3);
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("is in an unknown memory"));
}

TEST(Executable, RefusesTablesOfHostCallsThatPointElsewhere) {
  const auto error = [](const std::function<void(HostCallT&)>& change) {
    ExecutableT exe = sample();
    exe.ops.push_back(std::make_unique<OpInfoT>());
    auto call = std::make_unique<HostCallT>();
    call->elem = Elem::f32;
    call->dims = {16, 4};
    call->slot = 1;
    call->offset = 256;  // to the end of the slot
    change(*call);
    exe.host_calls.push_back(std::make_unique<HostCallT>());
    exe.host_calls.push_back(std::move(call));
    return error_of(write_executable(exe));
  };
  EXPECT_EQ(error([](HostCallT&) {}), "no error");
  EXPECT_EQ(error([](HostCallT& call) { call.partition = 7; }), "no error");
  EXPECT_THAT(error([](HostCallT& call) { call.partition = 8; }),
              HasSubstr("partition of host call 1"));
  EXPECT_THAT(error([](HostCallT& call) { call.partition = -2; }),
              HasSubstr("partition of host call 1"));
  EXPECT_THAT(error([](HostCallT& call) { call.slot = 2; }),
              HasSubstr("slot or op of host call 1"));
  EXPECT_THAT(error([](HostCallT& call) { call.op = 1; }), HasSubstr("slot or op of host call 1"));
  EXPECT_THAT(error([](HostCallT& call) { call.elem = static_cast<Elem>(99); }),
              HasSubstr("array of host call 1"));
  EXPECT_THAT(error([](HostCallT& call) { call.dims.assign(100, 1); }),
              HasSubstr("array of host call 1"));
  EXPECT_THAT(error([](HostCallT& call) { call.dims[1] = -4; }),
              HasSubstr("a dimension is negative"));
  EXPECT_THAT(error([](HostCallT& call) { call.dims[0] = INT64_MAX; }), HasSubstr("too large"));
  EXPECT_THAT(error([](HostCallT& call) { call.dims[0] = 17; }), HasSubstr("bytes of host call 1"));
  EXPECT_THAT(error([](HostCallT& call) { ++call.offset; }), HasSubstr("bytes of host call 1"));
  EXPECT_THAT(error([](HostCallT& call) { call.offset = UINT64_MAX; }),
              HasSubstr("bytes of host call 1"));
  EXPECT_EQ(error([](HostCallT& call) { call.memory = true; }), "no error");
  const auto of_stage = [&](HostStage stage, bool memory) {
    return error([=](HostCallT& call) {
      call.stage = stage;
      call.memory = memory;
    });
  };
  EXPECT_EQ(of_stage(HostStage::finish, true), "no error");
  EXPECT_THAT(of_stage(HostStage::start, false), HasSubstr("stage of host call 1"));
  EXPECT_THAT(of_stage(static_cast<HostStage>(3), true), HasSubstr("stage of host call 1"));
  EXPECT_THAT(error([](HostCallT& call) {
                call.memory = true;
                call.partition = 2;
              }),
              HasSubstr("host call 1 keeps bytes of one partition for all"));
  const auto number = [](HostCallT& call) {
    call.memory = call.index = true;
    call.elem = Elem::i32;
    call.dims = {};
  };
  EXPECT_EQ(error([&](HostCallT& call) {
              number(call);
              call.to_host = true;
            }),
            "no error");
  for (const int wrong : {0, 1, 2, 3}) {
    EXPECT_THAT(error([&](HostCallT& call) {
                  number(call);
                  call.to_host = wrong != 0;
                  call.memory = wrong != 1;
                  call.dims.resize(wrong == 2 ? 1 : 0, 2);
                  call.elem = wrong == 3 ? Elem::i16 : Elem::i32;
                }),
                HasSubstr("host call 1 must send one integer"))
        << wrong;
  }
}

// The result takes the memory of the argument, whose slot is the only one.
ExecutableT donating() {
  ExecutableT exe = sample();
  exe.args[0]->donated_to = 0;
  exe.results[0]->slot = 0;
  exe.slots.pop_back();
  reinterpret_cast<tpu_program_image_header_t*>(exe.image.data())->slots = 1;
  return exe;
}

TEST(Executable, ADonatedResultHasTheSlotOfItsArgument) {
  EXPECT_EQ(error_of(write_executable(donating())), "no error");
  ExecutableT exe = donating();
  exe.slots[0]->index = 0x40000000;  // looked at before it is followed
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("index of slot 0"));
  exe = donating();
  exe.slots[0]->bytes = 4;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("is larger than its slot"));
  exe = donating();
  exe.results[0]->local_dims = exe.results[0]->global_dims = {32, 8};
  exe.results[0]->offsets.assign(16, 0);
  exe.results[0]->replicated = true;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("result 0 is larger than its slot"));
}

TEST(Executable, SaysThatAFileIsOfAnotherFormat) {
  std::vector<std::byte> bytes = write_executable(sample());
  bytes[7] = std::byte{'1'};
  EXPECT_THAT(error_of(bytes), HasSubstr("another format version; compile the program again"));
  bytes[0] = std::byte{'X'};
  EXPECT_THAT(error_of(bytes), HasSubstr("not a tpuboard executable"));
}

TEST(Executable, RefusesSlotsThatDoNotFitTheParameters) {
  ExecutableT exe = sample();
  exe.slots[1]->kind = SlotKind::argument;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("slot 1 binds what another slot binds"));
  exe = sample();
  exe.slots[1]->bytes = 4;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("result 0 is larger than its slot"));
  exe = sample();
  exe.slots.resize(1);
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("more arguments and results than slots"));
  exe = sample();
  exe.slots[0]->kind = SlotKind::constant;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("index of slot 0"));
}

TEST(Executable, RefusesSumsWithoutATermForEachCore) {
  ExecutableT exe = sample();
  exe.args[0]->terms.assign(exe.partitions + 1, 0);
  EXPECT_THAT(error_of(write_executable(exe)),
              HasSubstr("argument 0 is an unreduced value, but does not have one"));
  exe.args[0]->replicated = false;
  exe.args[0]->terms.assign(exe.partitions, static_cast<uint8_t>(exe.partitions));
  EXPECT_THAT(error_of(write_executable(exe)),
              HasSubstr("argument 0 is an unreduced value with a term of a core"));
}

TEST(Executable, RefusesDonationsWithoutBothEnds) {
  ExecutableT exe = sample();
  exe.args[0]->donated_to = 0;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("does not take its memory"));
  exe = donating();
  exe.args[0]->donated_to = -1;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("more arguments and results than slots"));
  exe = sample();
  exe.results[0]->slot = 0;  // in the memory of an argument that is not donated
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("result 0 names a slot of another kind"));
  exe = sample();
  exe.args[0]->slot = 1;  // an argument in the memory of a result
  EXPECT_THAT(error_of(write_executable(exe)),
              HasSubstr("argument 0 names a slot of another kind"));
  exe = sample();
  exe.args[0]->donated_to = 0;
  exe.results[0]->slot = 0;  // and the slot of its own is still there
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("slot 1 is of a result that is in"));
}

TEST(Executable, RefusesArraysThatTheirCoresDoNotMakeUp) {
  ExecutableT exe = sample();
  exe.results[0]->offsets[2] = 0;  // core 1 holds what core 0 holds; rows 2 and 3 are nowhere
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("elements that no core holds"));
  exe = sample();
  exe.results[0]->offsets[2] = 1;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("overlap in part"));
  exe = sample();
  exe.results[0]->replicated = true;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("no core holds all of it"));
  exe = sample();
  exe.results[0]->global_dims = {int64_t{1} << 39, 2};  // room for it would be asked for on reading
  exe.results[0]->local_dims = {1, 1};
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("elements that no core holds"));
}

TEST(Executable, HoldsArraysOfZeroElementsAndManyDimensions) {
  ExecutableT exe = sample();
  exe.results[0]->global_dims = {16, 0};
  exe.results[0]->local_dims = {2, 0};
  exe.slots[1]->bytes = 0;
  exe.constants.push_back(std::make_unique<ConstantT>());
  EXPECT_EQ(error_of(write_executable(exe)), "no error");
  for (const size_t rank : {kMaxRank, kMaxRank + 1}) {
    exe = sample();
    exe.partitions = 1;
    auto* head = reinterpret_cast<tpu_program_image_header_t*>(exe.image.data());
    head->cores = 1;
    for (TensorT* t : {exe.args[0].get(), exe.results[0].get()}) {
      t->global_dims.assign(rank, 1);
      t->local_dims.assign(rank, 1);
      t->offsets.assign(rank, 0);
    }
    EXPECT_THAT(error_of(write_executable(exe)),
                HasSubstr(rank > kMaxRank ? "at most 64 are possible" : "no error"));
  }
}

TEST(Executable, EachPartitionHasACoreOfItsOwn) {
  ExecutableT exe = sample();
  exe.cores = {3, 2, 1, 0, 7, 6, 5, 4};
  EXPECT_EQ(error_of(write_executable(exe)), "no error");
  exe.cores[7] = 0;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("two partitions have the same core"));
  exe.cores.pop_back();
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("7 cores for 8 partitions"));
}

// Compilers without the field kept the two words of an element together.
TEST(Executable, RefusesPairsOfWordsWhereTheBoardHasPlanes) {
  ExecutableT exe = sample();
  EXPECT_EQ(error_of(write_executable(exe)), "no error") << "nothing has 64 bits";
  exe.args[0]->elem = Elem::i64;
  exe.slots[0]->bytes = 1024;
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("in two planes; compile the program"));
  exe.wide_layout = WideLayout::planes;
  EXPECT_EQ(error_of(write_executable(exe)), "no error");
}

TEST(Executable, RefusesOwnersOfPartsOfWordPlanes) {
  ExecutableT exe = sample();
  exe.wide_layout = WideLayout::planes;
  TensorT& tensor = *exe.results[0];
  tensor.elem = Elem::ui64;
  tensor.replicated = true;
  tensor.global_dims = tensor.local_dims;
  tensor.offsets.assign(16, 0);
  exe.slots[1]->bytes = 1024;
  EXPECT_EQ(error_of(write_executable(exe)), "no error");
  tensor.owned_elements = {10, 6};
  tensor.owned_by = {0, 1};
  EXPECT_THAT(error_of(write_executable(exe)), HasSubstr("cannot have owners"));
}

// 20,000 arguments that share one list of 10,000 offsets would take 1.6 GB.
TEST(Executable, RefusesTablesThatShareTheirContents) {
  flatbuffers::FlatBufferBuilder builder;
  const auto offsets = builder.CreateVector(std::vector<int64_t>(10'000));
  const auto tensor = CreateTensor(builder, 0, Elem::f32, 0, 0, offsets);
  const auto args = builder.CreateVector(std::vector(20'000, tensor));
  builder.Finish(CreateExecutable(builder, 0, spec::kIsaVersion, 0, 0, 1, 0, args));
  std::vector<std::byte> bytes = write_executable(sample());
  bytes.resize(48 + builder.GetSize());
  const uint64_t size = builder.GetSize();
  std::memcpy(bytes.data() + 8, &size, sizeof size);
  std::memcpy(bytes.data() + 48, builder.GetBufferPointer(), size);
  repair_hash(bytes);
  EXPECT_THAT(error_of(bytes), HasSubstr("share their contents"));
}

TEST(Executable, MutationsWithRepairedHashNeverCrash) {
  const std::vector<std::byte> bytes = write_executable(sample());
  std::mt19937_64 random(1);
  int refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::vector<std::byte> bad = bytes;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int c = 0; c < changes; ++c) {
      bad[48 + random() % (bad.size() - 48)] = static_cast<std::byte>(random() & 0xFF);
    }
    repair_hash(bad);
    refused += error_of(bad) != "no error" ? 1 : 0;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace tpu::exe
