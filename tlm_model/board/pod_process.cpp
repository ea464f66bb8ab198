// Messages to and from the boards of other processes, and the loop of a run.
#include "board/pod_process.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "kernel/cycles.hpp"
#include "kernel/end_cycle.hpp"
#include "wire/body_archive.hpp"

namespace tpu::model {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kNap{5};  // between two looks at what asks a run to end
constexpr std::chrono::seconds kGreeting{60};
constexpr std::chrono::seconds kLastWords{2};  // for others that do not read

// What another process has said before it ended.
class ToldLost : public PodLost {
 public:
  using PodLost::PodLost;
};

template <class T>
std::vector<std::byte> bytes_of(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

template <class T>
T value_of(const PodFrame& frame, uint32_t from) {
  T value{};
  if (frame.body.size() != sizeof value) {
    throw PodLost("a frame of rank " + std::to_string(from) + " has " +
                  std::to_string(frame.body.size()) + " bytes, expected " +
                  std::to_string(sizeof value));
  }
  std::memcpy(&value, frame.body.data(), sizeof value);
  return value;
}

// The least latency in cycles of everything that crosses between two boards, and to the host. Each
// is met between neighbors, or one board apart: the walk over all pairs ends early there.
uint64_t least_latency(const spec::Links& links, const spec::BoardParams& params) {
  struct Latency {
    uint64_t cycles = kNever;
    const char* number = "";
    bool operator<(const Latency& other) const { return cycles < other.cycles; }
  };
  const auto of = [&](int64_t ns, const char* number) {
    return Latency{spec::cycles_from_ns(params, ns), number};
  };
  const Latency pcie = of(params.pcie.latency_ns, "pcie.latency_ns");
  const Latency control = of(params.ici.control_hop_ns, "ici.control_hop_ns");
  const Latency hop = of(params.ici.hop_ns, "ici.hop_ns");
  const Latency extra = of(params.ici.extra_hop_ns, "ici.extra_hop_ns");
  const Latency floor = std::min({pcie, control, hop, extra});
  Latency least = pcie;
  const auto add = [&](uint64_t cycles, const char* number) {
    least = std::min(least, Latency{cycles, number});
  };
  const auto step = static_cast<uint32_t>(params.board.cores_per_chip);
  for (uint32_t from = 0; from < links.cores() && floor < least; from += step) {
    for (uint32_t to = 0; to < links.cores() && floor < least; to += step) {
      if (!links.cut(from, to)) {
        continue;
      }
      add(links.control_latency(from, to), control.number);
      const std::vector<spec::Links::Section> sections = links.sections(from, to);
      for (size_t i = 0; i < sections.size(); ++i) {
        add(sections[i].entry, hop.number);
        if (i + 1 < sections.size()) {
          add(sections[i].rest, extra.number);
        }
      }
    }
  }
  if (least.cycles == 0) {
    throw std::runtime_error(std::string(least.number) +
                             ": expected at least 1 ns with boards in several processes, found 0: "
                             "what is sent must be under way for a cycle");
  }
  return least.cycles;
}

}  // namespace

// Sends what its own board would take.
class PodProcess::FarCut : public CutEnd {
 public:
  FarCut(PodProcess& owner, uint32_t board) : owner_(owner), board_(board) {}
  void take(const CutKey& key, CutBody&& body) override {
    if (auto* delivery = std::get_if<CutDelivery>(&body)) {
      send_data(key, *delivery);
    }
    PodFrame frame = cut_frame(key, body);
    frame.to = board_;
    owner_.post(board_, frame);
    owner_.note_sent(key.at);
  }

 private:
  void send_data(const CutKey& key, const CutDelivery& delivery) {
    if (!delivery.range.is_there) {
      owner_.post_data(board_, key, delivery.data);
      return;
    }
    std::vector<uint8_t> piece;
    for (uint64_t done = 0; done < delivery.range.bytes; done += piece.size()) {
      piece.resize(std::min<uint64_t>(TPU_POD_WIRE_PIECE, delivery.range.bytes - done));
      owner_.hbm_[delivery.from_core]->read(delivery.range.from + done, piece);
      owner_.post_data(board_, key, piece);
    }
  }

  PodProcess& owner_;
  const uint32_t board_;
};

class PodProcess::FarControl : public ControlIf {
 public:
  FarControl(PodProcess& owner, uint32_t core) : owner_(owner), core_(core) {}
  void control_packet(uint64_t at, uint32_t from, const ControlPacket& packet) override {
    PodFrame frame;
    frame.kind = TPU_POD_WIRE_CONTROL;
    frame.at = at;
    frame.board = owner_.links_->board_of(from);
    frame.core = from;
    frame.to = core_;
    BodyWriter writer;
    ControlPacket copy = packet;
    writer(copy);
    frame.body = writer.take();
    owner_.post(owner_.links_->board_of(core_), frame);
    owner_.note_sent(at);
  }

 private:
  PodProcess& owner_;
  const uint32_t core_;
};

// Cores of other boards are reached by messages alone: nobody calls this.
class PodProcess::FarCore : public RemoteIf {
 public:
  RemoteAnswer remote_open(const RemoteWrite& /*write*/, RemotePlace* /*place*/) override {
    throw std::logic_error("a core of another process was written to without a message");
  }
  void remote_landed(const RemoteWrite& /*write*/, std::span<const uint8_t> /*data*/) override {
    throw std::logic_error("a core of another process was written to without a message");
  }
  RemoteAnswer remote_signal(const RemoteSignal& /*signal*/) override {
    throw std::logic_error("a core of another process was signalled without a message");
  }
};

PodProcess::PodProcess(std::shared_ptr<PodStream> stream, std::shared_ptr<const spec::Links> links,
                       const spec::BoardParams& params, const PodHello& hello, Activity& activity)
    : stream_(std::move(stream)),
      links_(std::move(links)),
      hello_(hello),
      semaphores_(static_cast<uint32_t>(params.core.semaphores)),
      lookahead_(least_latency(*links_, params)),
      activity_(activity),
      clock_(stream_->rank(), stream_->ranks(), lookahead_),
      far_core_(std::make_unique<FarCore>()),
      held_(stream_->ranks()),
      pieces_(stream_->ranks()),
      greeted_(stream_->ranks()) {
  if (stream_->ranks() > links_->boards()) {
    throw std::runtime_error("expected at most as many processes as boards (" +
                             std::to_string(links_->boards()) + "), found " +
                             std::to_string(stream_->ranks()));
  }
  hello_.ranks = stream_->ranks();
  hello_.pid = static_cast<uint32_t>(::getpid());
  for (uint32_t board = 0; board < links_->boards(); ++board) {
    far_cuts_.push_back(has(board) ? nullptr : std::make_unique<FarCut>(*this, board));
  }
  for (uint32_t core = 0; core < links_->cores(); ++core) {
    far_controls_.push_back(
        has(links_->board_of(core)) ? nullptr : std::make_unique<FarControl>(*this, core));
  }
}

PodProcess::~PodProcess() = default;

CutEnd& PodProcess::far_cut(uint32_t board) { return *far_cuts_.at(board); }
ControlIf& PodProcess::far_control(uint32_t core) { return *far_controls_.at(core); }
RemoteIf& PodProcess::far_core() { return *far_core_; }

void PodProcess::connect(std::vector<CutEnd*> cuts, std::vector<ControlIf*> controls,
                         std::vector<HbmIf*> hbm, std::function<uint64_t()> silent) {
  cuts_ = std::move(cuts);
  controls_ = std::move(controls);
  hbm_ = std::move(hbm);
  silent_here_ = std::move(silent);
}

void PodProcess::post(uint32_t board, const PodFrame& frame) {
  if (now_cycles() < clock_.silent() || frame.at < now_cycles() + lookahead_) {
    throw std::logic_error(
        "a message to board " + std::to_string(board) + " leaves at cycle " +
        std::to_string(now_cycles()) + " and arrives at cycle " + std::to_string(frame.at) +
        "; promised was to send nothing before cycle " + std::to_string(clock_.silent()) +
        ", and " + std::to_string(lookahead_) + " cycles of latency");
  }
  stream_->post(rank_of(board), frame);
}

void PodProcess::post_data(uint32_t board, const CutKey& key, std::span<const uint8_t> data) {
  const std::span<const std::byte> bytes = std::as_bytes(data);
  PodFrame frame;
  frame.kind = TPU_POD_WIRE_DATA;
  frame.at = 0;
  frame.board = key.board;
  frame.core = key.core;
  frame.number = key.number;
  frame.to = board;
  for (size_t done = 0; done < bytes.size(); done += frame.body.size()) {
    const auto piece =
        bytes.subspan(done, std::min<size_t>(TPU_POD_WIRE_PIECE, bytes.size() - done));
    frame.body.assign(piece.begin(), piece.end());
    stream_->post(rank_of(board), frame);
  }
}

void PodProcess::note_sent(uint64_t at) {
  sent_until_ = std::max(sent_until_, at);
  on_the_way_.push(at);
}

// At the end of a cycle. What has come from others since then counts in its sender.
uint64_t PodProcess::silent() {
  const uint64_t now = now_cycles();
  if (!silence_ || silence_->done != now) {
    while (!on_the_way_.empty() && on_the_way_.top() <= now) {
      on_the_way_.pop();
    }
    const uint64_t arrival = on_the_way_.empty() ? kNever : on_the_way_.top();
    silence_ = {now, std::max(now + 1, std::min(arrival, silent_here_()))};
  }
  return silence_->before;
}

PodStatus PodProcess::status(const Run& run, bool frozen) {
  const uint64_t now = now_cycles();
  PodStatus mine{};
  mine.run = clock_.run();
  mine.done = now;
  mine.silent = silent();
  mine.halt = run.halt();
  mine.busy = std::max(activity_.quiet() ? 0 : now + 1, sent_until_);
  mine.until = run.until;
  const bool stops = run.stop();
  if (stops) {
    mine.halt = now;
  }
  mine.flags = (stops ? TPU_POD_WIRE_STOP : 0) | (run.asked() ? TPU_POD_WIRE_ASKED : 0) |
               (frozen ? TPU_POD_WIRE_FROZEN : 0);
  return mine;
}

void PodProcess::publish(const PodStatus& status) {
  PodFrame frame;
  frame.kind = TPU_POD_WIRE_STATUS;
  frame.body = bytes_of(status);
  for (uint32_t rank = 0; rank < stream_->ranks(); ++rank) {
    if (rank != stream_->rank()) {
      stream_->post(rank, frame);
    }
  }
}

void PodProcess::greet() {
  if (hello_sent_) {
    return;
  }
  hello_sent_ = true;
  PodFrame frame;
  frame.kind = TPU_POD_WIRE_HELLO;
  frame.body = bytes_of(hello_);
  for (uint32_t rank = 0; rank < stream_->ranks(); ++rank) {
    if (rank != stream_->rank()) {
      stream_->post(rank, frame);
    }
  }
  greeted_[stream_->rank()] = true;
}

void PodProcess::check_hello(uint32_t from, const PodFrame& frame) {
  const auto other = value_of<PodHello>(frame, from);
  const auto differs = [&](const char* what, uint64_t here, uint64_t there) {
    if (here != there) {
      throw PodLost(std::string(what) + ": rank " + std::to_string(stream_->rank()) + " has " +
                    std::to_string(here) + ", rank " + std::to_string(from) + " has " +
                    std::to_string(there) + "; all processes of a pod need the same");
    }
  };
  differs("the version of tpuboard (checksum)", hello_.build, other.build);
  differs("the number of processes", hello_.ranks, other.ranks);
  differs("the board file (hash)", hello_.board_hash, other.board_hash);
  differs("the boot ROM (checksum)", hello_.rom, other.rom);
  differs("SimOptions::no_data", hello_.no_data, other.no_data);
  differs("SimOptions::schedule_seed", hello_.schedule_seed, other.schedule_seed);
  differs("the fault file and its seed (checksum)", hello_.faults, other.faults);
  stream_->wire().set_pid(from, static_cast<int>(other.pid));
  greeted_[from] = true;
}

void PodProcess::take_delivery(uint32_t from, CutMessage& message) {
  auto& delivery = std::get<CutDelivery>(message.body);
  std::vector<uint8_t> data = std::exchange(pieces_[from], {});
  const uint64_t expected = delivery.range.is_there ? delivery.range.bytes : delivery.write.bytes;
  if (!data.empty() && data.size() != expected) {
    throw PodLost("a transfer of rank " + std::to_string(from) + " has " +
                  std::to_string(data.size()) + " bytes of data, expected " +
                  std::to_string(expected));
  }
  if (!delivery.range.is_there) {
    delivery.data = std::move(data);
    return;
  }
  HbmIf* const hbm = hbm_[delivery.to_core];
  if (delivery.range.to > hbm->bytes() || data.size() > hbm->bytes() - delivery.range.to) {
    throw PodLost("a copy of rank " + std::to_string(from) + " ends outside of HBM");
  }
  delivery.copy = [hbm, at = delivery.range.to, data = std::move(data)] { hbm->write(at, data); };
}

void PodProcess::handle(uint32_t from, PodFrame frame) {
  if (frame.kind == TPU_POD_WIRE_LOST) {
    throw ToldLost({reinterpret_cast<const char*>(frame.body.data()), frame.body.size()});
  }
  if (frame.kind == TPU_POD_WIRE_HELLO || !greeted_[from]) {
    if (frame.kind != TPU_POD_WIRE_HELLO || greeted_[from]) {
      throw PodLost("rank " + std::to_string(from) + " does not begin with a greeting");
    }
    check_hello(from, frame);
    return;
  }
  if (frame.kind == TPU_POD_WIRE_STATUS) {
    if (!clock_.hear(from, value_of<PodStatus>(frame, from))) {
      held_[from] = std::move(frame);
    }
    return;
  }
  if (frame.kind == TPU_POD_WIRE_DATA) {
    std::vector<uint8_t>& data = pieces_[from];
    if (data.size() + frame.body.size() > TPU_POD_WIRE_MOST_DATA) {
      throw PodLost("a transfer of rank " + std::to_string(from) + " has too many bytes");
    }
    const auto* bytes = reinterpret_cast<const uint8_t*>(frame.body.data());
    data.insert(data.end(), bytes, bytes + frame.body.size());
    return;
  }
  if (frame.at <= clock_.end()) {
    throw PodLost("a message of rank " + std::to_string(from) + " arrives at cycle " +
                  std::to_string(frame.at) +
                  "; promised was that nothing more arrives in a window to cycle " +
                  std::to_string(clock_.end()) + ", in which this process is at " +
                  std::to_string(now_cycles()));
  }
  if (frame.kind == TPU_POD_WIRE_CONTROL) {
    ControlIf* const control = frame.to < controls_.size() ? controls_[frame.to] : nullptr;
    ControlPacket packet{};
    try {
      BodyReader reader(frame.body);
      reader(packet);
      reader.need(reader.left() == 0 && control != nullptr && frame.core < links_->cores() &&
                      packet.gang.end() <= links_->cores(),
                  "a core of it is not there");
    } catch (const spec::ArchiveError& error) {
      throw PodLost("a packet of rank " + std::to_string(from) + ": " + error.what());
    }
    control->control_packet(frame.at, frame.core, packet);
    return;
  }
  CutMessage message = cut_message(frame, *links_, semaphores_);
  CutEnd* const cut = frame.to < cuts_.size() ? cuts_[frame.to] : nullptr;
  if (cut == nullptr) {
    throw PodLost("a message of rank " + std::to_string(from) + " is for board " +
                  std::to_string(frame.to) + ", which is not in this process");
  }
  if (std::holds_alternative<CutDelivery>(message.body)) {
    take_delivery(from, message);
  }
  cut->take(message.key, std::move(message.body));
}

// Nothing of them is received before the run that their frames belong to.
RankSet PodProcess::held_ranks() const {
  RankSet held = 0;
  for (uint32_t rank = 0; rank < held_.size(); ++rank) {
    held |= held_[rank] ? rank_bit(rank) : 0;
  }
  return held;
}

// True: something has come.
bool PodProcess::receive() {
  bool any = false;
  for (uint32_t from = 0; from < stream_->ranks(); ++from) {
    if (held_[from]) {
      PodFrame frame = std::move(*held_[from]);
      held_[from].reset();
      handle(from, std::move(frame));
      any = any || !held_[from];
    }
    PodFrame frame;
    while (!held_[from] && stream_->next(from, frame)) {
      handle(from, std::move(frame));
      any = true;
    }
  }
  return any;
}

PodClock::Step PodProcess::run(const Run& run) {
  if (!lost_.empty()) {
    throw PodLost(lost_);
  }
  try {
    return run_all(run);
  } catch (const ToldLost& lost) {
    lose(lost.what());
  } catch (const PodLost& lost) {
    // One that has ended may have said why.
    const std::string told = stream_->find_lost().told;
    lose(told.empty() ? last_words(lost) : told);
  } catch (const sc_core::sc_unwind_exception&) {
    throw;  // the board is gone
  } catch (const std::exception& error) {
    stream_->send_lost(last_words(error), kLastWords);
    throw;
  }
}

std::string PodProcess::last_words(const std::exception& error) const {
  return "process " + std::to_string(hello_.pid) + " (rank " + std::to_string(stream_->rank()) +
         " of " + std::to_string(stream_->ranks()) + ") cannot continue: " + error.what();
}

// The others would wait for this process.
void PodProcess::lose(const std::string& why) {
  lost_ = "at cycle " + std::to_string(now_cycles()) + ": " + why;
  stream_->send_lost(why, kLastWords);
  throw PodLost(lost_);
}

PodClock::Step PodProcess::run_all(const Run& run) {
  greet();
  clock_.begin(clock_.run() + 1, now_cycles());
  silence_.reset();  // the host has acted
  const auto begun = Clock::now();
  bool frozen = false;
  std::optional<PodStatus> said;
  for (;;) {
    end_cycle();
    bool heard = receive();
    frozen = frozen || run.asked() || clock_.asked();
    const PodStatus mine = status(run, frozen);
    const auto say = [&] {
      if (!said || std::memcmp(&mine, &*said, sizeof mine) != 0) {
        publish(mine);
        said = mine;
      }
    };
    // Nobody waits for one in the middle of a window that goes on.
    if (mine.done == clock_.end() || mine.flags != 0) {
      say();
    }
    const PodClock::Step step = clock_.next(mine, !activity_.quiet());
    if (step.what != PodClock::Step::What::kRun) {
      say();
    }
    bool sent = stream_->flush();
    switch (step.what) {
      case PodClock::Step::What::kRun:
        ++windows_;
        sc_core::wait(from_cycles(step.to - now_cycles()), *run.wake);
        break;
      case PodClock::Step::What::kStop:
        for (; !sent; sent = stream_->flush()) {
          stream_->wire().wait(kNap, kAllRanks);
          const PodStream::Lost lost = stream_->find_lost();
          if (!lost.told.empty()) {
            throw ToldLost(lost.told);
          }
          if (!lost.ended.empty()) {
            throw PodLost(lost.ended);  // there may never be room
          }
        }
        return step;
      case PodClock::Step::What::kWait:
        if (!heard) {
          const auto before = Clock::now();
          stream_->wire().wait(kNap, step.from & ~held_ranks());
          waited_ += Clock::now() - before;
        }
        if (std::ranges::find(greeted_, false) != greeted_.end() &&
            Clock::now() - begun > kGreeting) {
          throw PodLost("rank " +
                        std::to_string(std::ranges::find(greeted_, false) - greeted_.begin()) +
                        " of " + std::to_string(stream_->ranks()) + " has not come");
        }
        break;
    }
  }
}

}  // namespace tpu::model
