// Collects engine events of a window of steps and writes them in order of time, see
// board_waves.hpp.
#include "waves/board_waves.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

namespace tpu::model {
namespace {

constexpr uint32_t kNoOpcode = 0;

// A cycle lasts 10^6 / MHz picoseconds; only the whole time is rounded, so nothing drifts.
uint64_t picoseconds(uint64_t cycle, uint64_t clock_mhz) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(cycle) * 1'000'000U / clock_mhz);
}

std::string_view opcode_name(int64_t opcode) {
  for (const spec::CommandInfo& info : spec::kCommands) {
    if (static_cast<int64_t>(info.opcode) == opcode) {
      return info.name;
    }
  }
  return "-";
}

}  // namespace

BoardWaves::BoardWaves(const BoardWavesOptions& options)
    : fst_(std::make_unique<FstProcess>(options.path)),
      clock_mhz_(options.clock_mhz),
      first_step_(options.first_step),
      last_step_(options.first_step + options.step_count) {
  declare(options);
  write_save_file(options);
}

BoardWaves::~BoardWaves() { finish(); }

void BoardWaves::declare(const BoardWavesOptions& options) {
  fst_->push_scope("board");
  for (uint32_t chip = 0; chip < options.chips; ++chip) {
    fst_->push_scope("chip" + std::to_string(chip));
    for (uint32_t core = 0; core < options.cores_per_chip; ++core) {
      CoreSignals signals{};
      fst_->push_scope("core" + std::to_string(core));
      signals.running = fst_->add_bits("program_running", 1);
      fst_->push_scope("hart");
      signals.pc = fst_->add_bits("pc", 32);
      signals.sleeping = fst_->add_bits("wfi", 1);
      fst_->pop_scope();
      for (const std::string_view queue : spec::kQueueNames) {
        fst_->push_scope(queue);
        QueueSignals q{};
        q.busy = fst_->add_bits("busy", 1);
        q.opcode = fst_->add_string("opcode");
        q.op_id = fst_->add_bits("op_id", 32);
        q.depth = fst_->add_bits("queued", 16);
        is_depth_.resize(q.depth + 1);
        is_opcode_.resize(q.depth + 1);
        is_depth_[q.depth] = 1;
        is_opcode_[q.opcode] = 1;
        signals.queues.push_back(q);
        fst_->pop_scope();
      }
      fst_->pop_scope();
      cores_.push_back(std::move(signals));
    }
    fst_->pop_scope();
  }
  fst_->pop_scope();
  value_.resize(is_depth_.size());
}

void BoardWaves::write_save_file(const BoardWavesOptions& options) {
  const std::filesystem::path wave(options.path);
  const std::filesystem::path save = std::filesystem::path(wave).replace_extension(".gtkw");
  std::ofstream file(save);
  file << "[dumpfile] \"" << wave.filename().string() << "\"\n[timestart] 0\n[size] 1600 900\n";
  for (uint32_t chip = 0; chip < options.chips; ++chip) {
    for (uint32_t core = 0; core < options.cores_per_chip; ++core) {
      const std::string path = "board.chip" + std::to_string(chip) + ".core" + std::to_string(core);
      file << "@200\n-" << path << "\n@28\n" << path << ".program_running\n";
      for (const std::string_view queue : spec::kQueueNames) {
        file << "@28\n"
             << path << "." << queue << ".busy\n@820\n"
             << path << "." << queue << ".opcode\n";
      }
    }
  }
  if (!file.flush()) {
    error_ = "waves: writing " + save.string() + " failed (is the disk full?)";
  }
}

void BoardWaves::add(uint64_t cycle, uint32_t signal, int64_t value) {
  events_.push_back({cycle, signal, static_cast<uint32_t>(events_.size()), value});
}

void BoardWaves::command(const CommandTrace& command) {
  if (!open()) {
    return;
  }
  const QueueSignals& q = cores_.at(command.core).queues.at(command.queue);
  add(command.issued, q.depth, 1);
  add(command.start, q.depth, -1);
  // Commands of a queue overlap: the engine shows the one that started last until the next may
  // start.
  const uint64_t end = std::max(command.free_at, command.start + 1);
  add(command.start, q.busy, 1);
  add(command.start, q.opcode, command.opcode);
  add(command.start, q.op_id, command.op_id);
  add(end, q.busy, 0);
  add(end, q.opcode, kNoOpcode);
}

void BoardWaves::program(uint64_t cycle, uint32_t core, bool begin) {
  if (open()) {
    add(cycle, cores_.at(core).running, begin ? 1 : 0);
  }
  running_ += begin ? 1U : 0U;
  if (!begin && running_ > 0 && --running_ == 0) {
    if (open()) {
      write_window();
    }
    ++step_;
    if (step_ >= last_step_) {
      static_cast<void>(finish());
    }
  }
}

void BoardWaves::hart(uint64_t cycle, uint32_t core, uint32_t pc, bool sleeping) {
  if (!open()) {
    return;
  }
  add(cycle, cores_.at(core).pc, pc);
  add(cycle, cores_.at(core).sleeping, sleeping ? 1 : 0);
}

void BoardWaves::write_window() {
  // At equal times an end comes before the start of the next command: falling values were added
  // first or sort by order, so busy = 0 events go in front.
  std::sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    if (a.cycle != b.cycle) {
      return a.cycle < b.cycle;
    }
    const bool a_ends = a.value == 0;
    const bool b_ends = b.value == 0;
    return a_ends != b_ends ? a_ends : a.order < b.order;
  });
  uint64_t now = last_cycle_;
  bool first = true;
  for (const Event& event : events_) {
    const uint64_t cycle = std::max(event.cycle, last_cycle_);
    if (first || cycle != now) {
      fst_->time(picoseconds(cycle, clock_mhz_));
      now = cycle;
      first = false;
    }
    const int64_t next =
        is_depth_[event.signal] != 0 ? value_[event.signal] + event.value : event.value;
    if (next == value_[event.signal]) {
      continue;
    }
    value_[event.signal] = next;
    if (is_opcode_[event.signal] != 0) {
      fst_->set_string(event.signal, opcode_name(next));
    } else {
      fst_->set_bits(event.signal, static_cast<uint64_t>(next));
    }
  }
  last_cycle_ = now;
  events_.clear();
}

std::string BoardWaves::finish() {
  if (fst_ != nullptr) {
    write_window();
    const std::string error = fst_->finish();
    error_ = error.empty() ? error_ : error;
    fst_.reset();
  }
  return error_;
}

}  // namespace tpu::model
