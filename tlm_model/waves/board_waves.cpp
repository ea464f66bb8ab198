// Collects events of a window of steps and writes them in order of time, see board_waves.hpp.
#include "waves/board_waves.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

namespace tpu::model {
namespace {

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

bool has_queue(const BoardWavesOptions& options, size_t queue) {
  const spec::QueueInfo& info = spec::kQueues[queue];
  return info.engine != spec::Engine::kMxu || info.unit < options.mxus;
}

}  // namespace

BoardWaves::BoardWaves(const BoardWavesOptions& options)
    : fst_(std::make_unique<FstProcess>(options.path)),
      path_(options.path),
      clock_mhz_(options.clock_mhz),
      first_step_(options.first_step),
      end_step_(options.first_step +
                std::min(options.step_count, UINT64_MAX - options.first_step)) {
  declare(options);
  write_save_file(options);
}

BoardWaves::~BoardWaves() { close(); }

// `width` 0: text.
uint32_t BoardWaves::add_signal(std::string_view name, uint32_t width, Kind kind) {
  signals_.push_back({.kind = kind});
  return width == 0 ? fst_->add_string(name) : fst_->add_bits(name, width);
}

void BoardWaves::declare(const BoardWavesOptions& options) {
  fst_->push_scope("board");
  for (uint32_t chip = 0; chip < options.chips; ++chip) {
    fst_->push_scope("chip" + std::to_string(chip));
    for (uint32_t core = 0; core < options.cores_per_chip; ++core) {
      CoreSignals signals{};
      fst_->push_scope("core" + std::to_string(core));
      signals.running = add_signal("program_running", 1);
      fst_->push_scope("hart");
      signals.pc = add_signal("pc", 32);
      signals.sleeping = add_signal("wfi", 1);
      fst_->pop_scope();
      signals.queues.resize(spec::kQueueCount);
      for (size_t queue = 0; queue < spec::kQueueCount; ++queue) {
        if (!has_queue(options, queue)) {
          continue;
        }
        fst_->push_scope(spec::kQueueNames[queue]);
        QueueSignals& q = signals.queues[queue];
        q.busy = add_signal("busy", 1, Kind::kBusy);
        q.opcode = add_signal("opcode", 0, Kind::kText);
        q.op_id = add_signal("op_id", 32);
        q.depth = add_signal("queued", 16, Kind::kCount);
        signals_[q.busy].opcode = q.opcode;
        fst_->pop_scope();
      }
      fst_->pop_scope();
      cores_.push_back(std::move(signals));
    }
    fst_->pop_scope();
  }
  fst_->pop_scope();
}

void BoardWaves::write_save_file(const BoardWavesOptions& options) {
  const std::filesystem::path wave(options.path);
  const std::filesystem::path save = std::filesystem::path(wave).replace_extension(".gtkw");
  std::ofstream file(save);
  // Each core: its program, hart and queues.
  file << "[dumpfile] \"" << wave.filename().string() << "\"\n[timestart] 0\n[size] 1600 900\n";
  for (uint32_t chip = 0; chip < options.chips; ++chip) {
    for (uint32_t core = 0; core < options.cores_per_chip; ++core) {
      const std::string path = "board.chip" + std::to_string(chip) + ".core" + std::to_string(core);
      file << "@200\n-" << path << "\n@28\n"
           << path << ".program_running\n"
           << path << ".hart.wfi\n@22\n"
           << path << ".hart.pc\n";
      for (size_t queue = 0; queue < spec::kQueueCount; ++queue) {
        if (!has_queue(options, queue)) {
          continue;
        }
        file << "@28\n"
             << path << "." << spec::kQueueNames[queue] << ".busy\n@820\n"
             << path << "." << spec::kQueueNames[queue] << ".opcode\n";
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

void BoardWaves::done(const DoneEvent& event) {
  if (!in_window(event.source.step)) {
    return;
  }
  const QueueSignals& q = cores_.at(event.source.core).queues.at(event.source.unit);
  add(event.issued, q.depth, 1);
  add(event.start, q.depth, -1);
  add(event.start, q.busy, 1);
  add(event.start, q.opcode, event.source.opcode);
  add(event.start, q.op_id, event.source.op_id);
  add(event.cycle, q.busy, -1);
}

void BoardWaves::program(const ProgramEvent& event) {
  if (event.begin) {
    begun_ = std::max(begun_, event.step + 1);
  }
  if (!in_window(event.step)) {
    if (event.begin && event.step >= end_step_ && active_ == 0) {
      close();  // the window is over
    }
    return;
  }
  if (event.begin && active_ == 0) {
    for (uint32_t signal = 0; !recorded_ && signal < signals_.size(); ++signal) {
      add(event.cycle, signal, 0);
    }
    recorded_ = true;
    for (const CoreSignals& each : cores_) {
      add_hart(event.cycle, each);
    }
  }
  add(event.cycle, cores_.at(event.core).running, event.begin ? 1 : 0);
  active_ += event.begin ? 1U : 0U;
  if (!event.begin && --active_ == 0) {
    write_window();
  }
}

void BoardWaves::hart(const HartEvent& event) {
  if (event.kind == HartEvent::Kind::kMmio) {
    return;
  }
  CoreSignals& signals = cores_.at(event.core);
  signals.last_pc = event.pc;
  signals.last_sleeping = event.kind == HartEvent::Kind::kSleep;
  if (recording()) {
    add_hart(event.cycle, signals);
  }
}

void BoardWaves::add_hart(uint64_t cycle, const CoreSignals& core) {
  add(cycle, core.pc, core.last_pc);
  add(cycle, core.sleeping, core.last_sleeping ? 1 : 0);
}

void BoardWaves::change(uint32_t signal, int64_t value) {
  Signal& s = signals_[signal];
  const bool counts = s.kind == Kind::kCount || s.kind == Kind::kBusy;
  s.value = counts ? s.value + value : value;
  if (!s.changed) {
    s.changed = true;
    changed_.push_back(signal);
  }
}

// Each signal once for a cycle, with the value that it has at its end.
void BoardWaves::write_changes(uint64_t cycle) {
  for (size_t i = 0; i < changed_.size(); ++i) {
    const Signal& s = signals_[changed_[i]];
    if (s.kind == Kind::kBusy && s.value == 0) {
      change(s.opcode, 0);
    }
  }
  fst_->time(picoseconds(cycle, clock_mhz_));
  for (const uint32_t signal : changed_) {
    Signal& s = signals_[signal];
    s.changed = false;
    const int64_t shown = s.kind == Kind::kBusy ? s.value != 0 : s.value;
    if (shown == s.written) {
      continue;
    }
    s.written = shown;
    if (s.kind == Kind::kText) {
      fst_->set_string(signal, opcode_name(shown));
    } else {
      fst_->set_bits(signal, static_cast<uint64_t>(shown));
    }
  }
  changed_.clear();
}

void BoardWaves::write_window() {
  std::sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    return a.cycle != b.cycle ? a.cycle < b.cycle : a.order < b.order;
  });
  for (const Event& event : events_) {
    const uint64_t cycle = std::max(event.cycle, last_cycle_);
    if (cycle != last_cycle_ && !changed_.empty()) {
      write_changes(last_cycle_);
    }
    last_cycle_ = cycle;
    change(event.signal, event.value);
  }
  if (!changed_.empty()) {
    write_changes(last_cycle_);
  }
  events_.clear();
}

void BoardWaves::close() {
  if (fst_ != nullptr) {
    write_window();
    const std::string error = fst_->finish();
    error_ = error.empty() ? error_ : error;
    fst_.reset();
  }
}

std::string BoardWaves::finish() {
  close();
  if (error_.empty() && !recorded_) {
    const std::string last = std::to_string(end_step_ - 1);
    error_ = "waves: nothing was recorded in " + path_ + ": of the steps " +
             std::to_string(first_step_) + " to " + last + " none ran; the board ran " +
             std::to_string(begun_) + " steps, counted from 0";
  }
  return error_;
}

}  // namespace tpu::model
