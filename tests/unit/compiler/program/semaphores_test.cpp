// Semaphore insertion: every conflict is ordered, no edge is superfluous, counts end at zero.
#include "program/semaphores.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

#include "asm/assembler.hpp"
#include "asm/disassembler.hpp"
#include "board/board_loader.hpp"
#include "entry/codegen.hpp"
#include "entry/pipeline.hpp"
#include "import/import.hpp"
#include "untimed_core.hpp"

namespace tpu::compiler {
namespace {

// `unit`: bytes between the places where ranges begin and end.
Listing random_listing(uint32_t seed, int commands, int64_t unit = 64) {
  std::mt19937 random(seed);
  Listing l;
  for (int i = 0; i < commands; ++i) {
    Command c;
    c.body = make_command<spec::NopCommand>(
        spec::Opcode::kNop, static_cast<spec::Queue>(random() % spec::kQueueCount), 0);
    for (int r = 0; r < 3; ++r) {
      MemRange m;
      m.lo = static_cast<int64_t>(random() % 20) * unit;
      m.hi = m.lo + unit * static_cast<int64_t>(1 + random() % 3);
      if (random() % 4 == 0) {  // every second row of 32 bytes
        m.pitch = 64;
        m.width = 32;
        m.lo += static_cast<int64_t>(random() % 2) * 32;
      }
      m.write = random() % 3 == 0;
      c.windows.push_back(m);
    }
    l.append(std::move(c));
  }
  return l;
}

// reach[a][b]: a is done before b starts, by queue order and edges.
std::vector<std::vector<bool>> closure(const Listing& l, const std::vector<SyncEdge>& edges) {
  const size_t n = l.items.size();
  std::vector<std::vector<bool>> reach(n, std::vector<bool>(n));
  std::vector<std::vector<size_t>> from(n);
  for (const SyncEdge& e : edges) {
    from[static_cast<size_t>(e.to)].push_back(static_cast<size_t>(e.from));
  }
  std::vector<int> last(spec::kQueueCount, -1);
  for (size_t b = 0; b < n; ++b) {
    const auto q = static_cast<size_t>(std::get<Command>(l.items[b]).queue());
    if (last[q] >= 0) {
      from[b].push_back(static_cast<size_t>(last[q]));
    }
    last[q] = static_cast<int>(b);
    for (const size_t a : from[b]) {
      reach[b][a] = true;
      for (size_t k = 0; k < n; ++k) {
        reach[b][k] = reach[b][k] || reach[a][k];
      }
    }
  }
  return reach;
}

int unordered(const Listing& l, const std::vector<SyncEdge>& edges) {
  const auto reach = closure(l, edges);
  int bad = 0;
  for (size_t b = 0; b < l.items.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      for (const MemRange& x : std::get<Command>(l.items[a]).windows) {
        for (const MemRange& y : std::get<Command>(l.items[b]).windows) {
          if ((x.write || y.write) && ranges_overlap(x, y) && !reach[b][a]) {
            ++bad;
          }
        }
      }
    }
  }
  return bad;
}

TEST(Semaphores, RandomListingsAreOrderedWithoutSuperfluousEdges) {
  // Ranges inside of one page of the history, of few and many small ones, and of many large ones.
  constexpr std::array<int64_t, 4> kUnits = {64, 500000, 20000000, 700000000};
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    const Listing before = random_listing(seed, 60, kUnits[seed % kUnits.size()]);
    Listing after = before;
    const SyncResult sync = insert_semaphores(after, 128);
    ASSERT_EQ(unordered(before, sync.edges), 0) << "seed " << seed;
    for (size_t i = 0; i < sync.edges.size(); ++i) {
      std::vector<SyncEdge> fewer = sync.edges;
      fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
      ASSERT_GT(unordered(before, fewer), 0)
          << "seed " << seed << ": edge " << i << " is superfluous";
    }
  }
}

// The edges of a listing when every command is compared with all commands in front of it.
std::vector<std::pair<int, int>> edges_of_whole_history(const Listing& l) {
  using KnownItems = std::array<int, spec::kQueueCount>;
  KnownItems nothing;
  nothing.fill(-1);
  std::vector<KnownItems> of_queue(spec::kQueueCount, nothing), of_item;
  std::vector<std::pair<int, int>> edges;
  const auto command = [&](int i) -> const Command& {
    return std::get<Command>(l.items[static_cast<size_t>(i)]);
  };
  const auto conflict = [&](int a, int b) {
    for (const MemRange& x : command(a).windows) {
      for (const MemRange& y : command(b).windows) {
        if ((x.write || y.write) && ranges_overlap(x, y)) {
          return true;
        }
      }
    }
    return false;
  };
  for (int b = 0; b < static_cast<int>(l.items.size()); ++b) {
    const auto queue = static_cast<size_t>(command(b).queue());
    KnownItems& known = of_queue[queue];
    for (int a = b - 1; a >= 0; --a) {
      const auto maker = static_cast<size_t>(command(a).queue());
      if (maker != queue && known[maker] < a && conflict(a, b)) {
        edges.emplace_back(a, b);
        for (size_t q = 0; q < known.size(); ++q) {
          known[q] = std::max(known[q], of_item[static_cast<size_t>(a)][q]);
        }
      }
    }
    known[queue] = b;
    of_item.push_back(known);
  }
  return edges;
}

// Long enough for pages of the history to be cleared up; in every second listing one queue comes at
// the end only, so that nobody's past is settled before.
TEST(Semaphores, LongListingsHaveTheEdgesOfTheirWholeHistory) {
  constexpr std::array<int64_t, 4> kUnits = {64, 500000, 20000000, 700000000};
  for (uint32_t seed = 0; seed < 8; ++seed) {
    Listing l = random_listing(1000 + seed, 1500, kUnits[seed / 2]);
    for (size_t i = 0; seed % 2 == 0 && i < 1400; ++i) {
      auto& head = std::get<Command>(l.items[i]).head();
      head.queue = static_cast<uint8_t>(head.queue % (spec::kQueueCount - 1));
    }
    const auto wanted = edges_of_whole_history(l);
    std::vector<std::pair<int, int>> edges;
    for (const SyncEdge& edge : insert_semaphores(l, 128).edges) {
      edges.emplace_back(edge.from, edge.to);
    }
    EXPECT_EQ(edges, wanted) << "seed " << seed;
  }
}

TEST(Semaphores, CountsBalanceAndEachHasOneProducerAndOneWaiter) {
  Listing l = random_listing(77, 300);
  insert_semaphores(l, 128);
  std::map<int, int> balance;
  std::map<int, std::set<spec::Queue>> producers, waiters;
  for (const Item& item : l.items) {
    const auto& c = std::get<Command>(item);
    for (const spec::Wait& w : c.head().wait) {
      if (w.valid()) {
        EXPECT_TRUE(w.take());
        --balance[w.sem];
        EXPECT_GE(balance[w.sem], 0) << "a wait stands before its signal";
        waiters[w.sem].insert(c.queue());
      }
    }
    for (const spec::Signal& s : c.head().signal) {
      if (s.valid()) {
        ++balance[s.sem];
        producers[s.sem].insert(c.queue());
      }
    }
  }
  EXPECT_GT(balance.size(), 10u);
  for (const auto& [sem, count] : balance) {
    EXPECT_EQ(count, 0) << "semaphore " << sem;
    EXPECT_EQ(producers[sem].size(), 1u);
    EXPECT_EQ(waiters[sem].size(), 1u);
  }
}

// Between two drains every semaphore goes from zero to zero, and a label or branch stands only at a
// drain.
TEST(Semaphores, EveryPieceBalances) {
  Listing l;
  for (uint32_t piece = 0; piece < 6; ++piece) {
    for (Item& item : random_listing(100 + piece, 40).items) {
      l.items.push_back(std::move(item));
    }
    Control wait;
    wait.kind = Control::Kind::kWait;
    wait.item = static_cast<int>(l.items.size()) - 7;
    l.append(wait);
    l.append(Control{});
  }
  insert_semaphores(l, 128);
  std::map<int, int> balance;
  int drains = 0;
  for (size_t i = 0; i < l.items.size(); ++i) {
    if (const auto* insn = std::get_if<spec::ScalarInsn>(&l.items[i])) {
      EXPECT_EQ(insn->op, static_cast<uint8_t>(spec::ScalarOp::kSwait));
      balance[insn->rs1] -= insn->imm;
      EXPECT_GE(balance[insn->rs1], 0);
      const auto* control = std::get_if<Control>(&l.items[i - 1]);
      ASSERT_NE(control, nullptr);
      if (control->kind == Control::Kind::kDrain) {
        ++drains;
        for (const auto& [sem, count] : balance) {
          EXPECT_EQ(count, 0) << "semaphore " << sem << " at item " << i;
        }
      }
    } else if (const auto* c = std::get_if<Command>(&l.items[i])) {
      for (const spec::Wait& w : c->head().wait) {
        balance[w.sem] -= w.valid() ? w.value : 0;
      }
      for (const spec::Signal& s : c->head().signal) {
        balance[s.sem] += s.valid() ? s.value : 0;
      }
    }
  }
  EXPECT_EQ(drains, 6);
}

Command on(int queue, std::vector<MemRange> windows) {
  Command c;
  c.body = make_command<spec::NopCommand>(spec::Opcode::kNop, static_cast<spec::Queue>(queue), 0);
  c.windows = std::move(windows);
  return c;
}

MemRange bytes(int64_t lo, bool write) {
  MemRange m;
  m.lo = lo;
  m.hi = lo + 64;
  m.write = write;
  return m;
}

// More than the headers of a command and of one nop hold: every queue reads what the first one
// wrote, and the last command reads what all of them wrote.
TEST(Semaphores, WaitsAndSignalsBeyondAHeaderGoToNopsOfTheQueue) {
  Listing l;
  l.append(on(0, {bytes(0, true)}));
  std::vector<MemRange> all;
  for (int q = 1; q < spec::kQueueCount; ++q) {
    l.append(on(q, {bytes(0, false), bytes(64 * q, true)}));
    all.push_back(bytes(64 * q, false));
  }
  l.append(on(0, all));
  const SyncResult sync = insert_semaphores(l, 128);
  ASSERT_EQ(sync.edges.size(), 2u * (spec::kQueueCount - 1));
  std::map<int, int> signals, waits;
  for (const Item& item : l.items) {
    for (const spec::Signal& s : std::get<Command>(item).head().signal) {
      signals[s.sem] += s.valid() ? 1 : 0;
    }
    for (const spec::Wait& w : std::get<Command>(item).head().wait) {
      waits[w.sem] += w.valid() ? 1 : 0;
    }
  }
  for (int sem = 0; sem < sync.semaphores; ++sem) {
    EXPECT_EQ(signals[sem], 1) << sem;
    EXPECT_EQ(waits[sem], 1) << sem;
  }
}

TEST(Semaphores, ADrainWaitsForNothingThatAnotherCommandKnows) {
  Listing l;
  l.append(on(1, {bytes(0, true)}));
  l.append(on(0, {bytes(0, false)}));
  l.append(Control{});
  const SyncResult sync = insert_semaphores(l, 128);
  ASSERT_EQ(sync.edges.size(), 2u);  // from the first to the second, from that one to the drain
  EXPECT_EQ(sync.edges[1].from, 1);
}

// The host reads bytes: the sequencer waits for what has written them, on a semaphore of each
// queue, and for nothing else. What comes behind it knows that.
TEST(Semaphores, TheSequencerAwaitsTheWritersOfARange) {
  Listing l;
  l.append(on(0, {bytes(0, true)}));
  l.append(on(1, {bytes(64, true)}));
  l.append(on(2, {bytes(4096, true)}));
  l.append(on(3, {bytes(0, false)}));
  Control await;
  await.kind = Control::Kind::kAwait;
  await.range = bytes(0, false);
  await.range.hi = 128;
  l.append(await);
  l.append(on(2, {bytes(0, false)}));
  const SyncResult sync = insert_semaphores(l, 128);
  std::set<std::pair<int, int>> edges;
  for (const SyncEdge& e : sync.edges) {
    edges.emplace(e.from, e.to);
  }
  EXPECT_EQ(edges, (std::set<std::pair<int, int>>{{0, 3}, {0, 4}, {1, 4}}));
  std::set<int> taken;
  for (const Item& item : l.items) {
    if (const auto* insn = std::get_if<spec::ScalarInsn>(&item)) {
      EXPECT_EQ(static_cast<spec::ScalarOp>(insn->op), spec::ScalarOp::kSwait);
      EXPECT_EQ(insn->imm, 1);
      taken.insert(insn->rs1);
    }
  }
  EXPECT_EQ(taken.size(), 2u);
}

TEST(Semaphores, ACommandKnowsWhatTheOneThatItAnswersKnew) {
  Listing l;
  l.append(on(0, {bytes(0, true)}));
  l.append(on(1, {bytes(0, false)}));
  Command answered = on(2, {bytes(0, false)});
  answered.implies = {1};
  l.append(answered);
  EXPECT_EQ(insert_semaphores(l, 128).edges.size(), 1u);
}

TEST(Semaphores, ALabelInsideAPieceIsRefused) {
  Listing l = random_listing(5, 4);
  Control label;
  label.kind = Control::Kind::kLabel;
  label.label = 0;
  l.append(label);
  EXPECT_THROW(insert_semaphores(l, 128), Error);
}

TEST(Semaphores, TooFewAreAnError) {
  Listing l = random_listing(3, 200);
  EXPECT_THROW(insert_semaphores(l, 4), Error);
}

TEST(MemRange, ColumnsOfOneMatrixDoNotOverlap) {
  MemRange left, right;
  left.lo = 0;
  left.hi = 1000;
  left.pitch = 100;
  left.width = 40;
  right = left;
  right.lo = 40;
  right.hi = 1000;
  right.width = 60;
  EXPECT_FALSE(ranges_overlap(left, right));
  right.lo = 39;
  EXPECT_TRUE(ranges_overlap(left, right));
  right.lo = 80;  // its window runs into the next row's left part
  EXPECT_TRUE(ranges_overlap(left, right));
  MemRange dense = left;
  dense.pitch = 0;
  EXPECT_TRUE(ranges_overlap(dense, right));
}

std::vector<size_t> find_all(const std::string& text, const std::string& what) {
  std::vector<size_t> out;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    out.push_back(at);
  }
  return out;
}

// Takes one wait and the signal it meets out of a compiled program: the order check must notice.
void delete_each_wait(const std::string& artifact) {
  const spec::BoardParams board = spec::load_board("v3_8");
  Module m = import_vhlo_file(std::string(TPU_TEST_DATA) + "/" + artifact + ".mlirbc");
  run_passes(m, canonical_passes());
  const std::string text = disassemble(generate(m, board));
  const std::vector<size_t> waits = find_all(text, " wait=");
  ASSERT_GT(waits.size(), 3u);
  for (size_t i = 0; i<waits.size(); i += waits.size()> 60 ? 5 : 1) {
    const size_t colon = text.find(':', waits[i]);
    const std::string sem = text.substr(waits[i] + 6, colon - waits[i] - 6);
    if (std::stoi(sem) >= 122 && std::stoi(sem) % 2 == 0) {
      continue;  // a grant of landing memory that nothing used before: the launch barrier covers it
    }
    const std::string wait = " wait=" + sem + ":1:take";
    size_t nth = 0;
    for (const size_t at : find_all(text, wait)) {
      nth += at < waits[i] ? 1 : 0;
    }
    const std::vector<size_t> signals = find_all(text, " signal=" + sem + ":1");
    ASSERT_LT(nth, signals.size());
    std::string changed = text;
    const size_t signal = signals[nth];
    const size_t signal_end = std::min(text.find(' ', signal + 1), text.find('\n', signal));
    // From the back, so that positions stay.
    const auto erase = [&](size_t at, size_t end) { changed.erase(at, end - at); };
    if (signal > waits[i]) {
      erase(signal, signal_end);
      erase(waits[i], waits[i] + wait.size());
    } else {
      erase(waits[i], waits[i] + wait.size());
      erase(signal, signal_end);
    }
    const exe::ExecutableT e = assemble(changed, artifact, board);
    test::UntimedMachine machine(e, board);
    EXPECT_THROW(machine.run(), test::UntimedError)
        << "the program runs without the wait at " << waits[i] << " (semaphore " << sem << ")";
  }
}

TEST(WaitDeletion, IsNoticedInAKernelChain) { delete_each_wait("dense"); }
TEST(WaitDeletion, IsNoticedInReductionsAndDots) { delete_each_wait("dots"); }
TEST(WaitDeletion, IsNoticedInATrainingStepOfEightCores) { delete_each_wait("mlp_sgd"); }

}  // namespace
}  // namespace tpu::compiler
