// Events to signals, see board_waves.hpp.
#include "waves/board_waves.hpp"

#include <algorithm>

#include "command/bandwidth_share.hpp"
#include "terminal/counted.hpp"
#include "waves/wave_views.hpp"

namespace tpu::model {
namespace {

std::vector<std::string> core_paths(const WaveBoard& board) {
  std::vector<std::string> paths;
  for (size_t core = 0; core < size_t{board.chips} * board.cores_per_chip; ++core) {
    paths.push_back(core_path(board, core));
  }
  return paths;
}

bool by_steps(const BoardWavesOptions& options) {
  return options.trigger.empty() && options.before_cycles == 0;
}

uint64_t end_step(const BoardWavesOptions& options) {
  return options.first_step + std::min(options.step_count, UINT64_MAX - options.first_step);
}

WaveTrigger trigger_of(const BoardWavesOptions& options) {
  if (by_steps(options)) {
    return WaveTrigger::steps(options.first_step, end_step(options));
  }
  return WaveTrigger::parse(options.trigger.empty() ? "fault" : options.trigger,
                            {.clock_mhz = options.clock_mhz,
                             .cores = core_paths(options.board),
                             .programs = options.programs,
                             .no_data = options.no_data,
                             .verilog = options.other_verilog || !options.verilog.empty()});
}

uint64_t per_kcycle(uint64_t rate) { return rate * 1000 >> spec::BandwidthShare::kFraction; }

}  // namespace

BoardWaves::BoardWaves(const BoardWavesOptions& options)
    : options_(options),
      tree_(options.scopes),
      signals_(add_board_signals(options.board, tree_)),
      trigger_(trigger_of(options)),
      texts_(options.programs, signals_.cores.size()),
      queues_(signals_.cores.size(), std::vector<Queue>(spec::kQueueCount)),
      rates_(signals_.cores.size()),
      irqs_(signals_.cores.size()) {
  for (const VerilogUnit& unit : options.verilog) {
    verilog_.emplace_back(unit, tree_);
  }
  tree_.check();
  values_.assign(tree_.signals().size(), 0);
  fst_ =
      std::make_unique<FstProcess>(FstOptions{.path = options.path,
                                              .clock_mhz = options.clock_mhz,
                                              .keep_cycles = options.before_cycles,
                                              .one_thread = verilog_.empty(),
                                              .write_views = [this](const WaveSpan& span) {
                                                return write_wave_views(options_.path, tree_, span);
                                              }});
  tree_.declare(*fst_);
}

BoardWaves::~BoardWaves() {
  if (fst_ != nullptr) {
    fst_->finish();
  }
}

void BoardWaves::listen(ProbeSet& probes) {
  BoardSignals need = signals_;
  need.wanted(ProbeEvent::kProgram) = kAllCores;
  if (options_.for_cycles != UINT64_MAX) {
    need.wanted(ProbeEvent::kIssue) = kAllCores;
    need.wanted(ProbeEvent::kDone) = kAllCores;
  }
  const CoreMask queues = verilog_.empty() ? need.wanted(ProbeEvent::kStart) : kAllCores;
  for (const ProbeEvent event :
       {ProbeEvent::kStart, ProbeEvent::kIssue, ProbeEvent::kWait, ProbeEvent::kDone}) {
    need.wanted(event) |= queues;
  }
  for (size_t index = 0; index < kProbeEvents; ++index) {
    const auto event = static_cast<ProbeEvent>(index);
    if ((trigger_.wanted() >> index & 1) != 0) {
      need.wanted(event) = kAllCores;
    }
    if (need.wanted(event) != 0) {
      probes.add(*this, {event}, need.wanted(event));
    }
  }
  if (const auto pc = trigger_.watched_pc()) {
    probes.watch_pc(*pc);
  }
}

void BoardWaves::open(uint64_t cycle) {
  window_ = Window::kOpen;
  opened_ = true;
  tell_open(true);
  fst_->open(cycle);
  for (uint32_t signal = 0; options_.before_cycles == 0 && signal < values_.size(); ++signal) {
    if (values_[signal] != 0) {
      fst_->set(signal, cycle, values_[signal]);
    }
  }
  if (by_steps(options_)) {
    end_step_ = end_step(options_);
    return;
  }
  close_at_ = cycle + std::min(options_.for_cycles, UINT64_MAX - cycle);
  const uint64_t step = begun_ == 0 ? 0 : begun_ - 1;
  end_step_ = step + std::min(options_.for_steps, UINT64_MAX - step);
}

void BoardWaves::close(uint64_t cycle) {
  window_ = Window::kAfter;
  end_cycle_ = cycle;
  tell_open(false);
  fst_->close(cycle);
  if (verilog_.empty()) {  // else cycles from before may still come
    const std::string error = fst_->finish();
    error_ = error.empty() ? error_ : error;
  }
}

std::string BoardWaves::switch_window(bool on, uint64_t cycle) {
  if (window_ == Window::kAfter) {
    return "the window of " + options_.path + " is over; a file has one";
  }
  if (on == (window_ == Window::kOpen)) {
    return on ? "waves are on" : "waves are off";
  }
  on ? open(cycle) : close(cycle);
  return options_.path + (on ? " begins at cycle " : " ends at cycle ") + std::to_string(cycle);
}

void BoardWaves::tell_open(bool open) {
  if (options_.is_open != nullptr) {
    *options_.is_open = open;
  }
}

void BoardWaves::set(uint32_t signal, uint64_t cycle, uint64_t value) {
  if (signal == kNoSignal || values_[signal] == value) {
    return;
  }
  values_[signal] = value;
  if (window_ == Window::kOpen || options_.before_cycles != 0) {
    fst_->set(signal, cycle, value);
    ++changes_;
  }
}

void BoardWaves::program(const ProgramEvent& event) {
  if (event.begin) {
    begun_ = std::max(begun_, event.step + 1);
    trigger_.begin_step(event.core, event.launch);
    texts_.begin(event.core, event.launch);
  }
  if (event.begin && event.step >= end_step_ && window_ == Window::kOpen) {
    close(event.cycle);
  }
  if (!hear(event)) {
    return;
  }
  const CoreSignals& core = signals_.cores.at(event.core);
  set(core.running, event.cycle, event.begin ? 1 : 0);
  set(core.seq_state, event.cycle,
      static_cast<uint64_t>(event.begin ? WaveSequencerState::kRuns : WaveSequencerState::kIdle));
  if (event.begin) {
    ++active_;
    set(core.step, event.cycle, event.step);
    set(core.launch, event.cycle, event.launch);
    set(core.seq_pc, event.cycle, 0);
    return;
  }
  set(core.seq_op, event.cycle, WaveTexts::kNothing);
  for (uint32_t unit = 0; unit < spec::kQueueCount; ++unit) {  // what is queued is dropped
    Queue& queue = queues_[event.core][unit];
    queue.queued = 0;
    queue.waits = false;
    show_queue(event.cycle, event.core, unit);
  }
  active_ -= std::min(active_, 1U);
  if (active_ == 0 && event.step + 1 >= end_step_) {
    close(event.cycle + 1);
  }
}

void BoardWaves::issue(const IssueEvent& event) {
  if (!hear(event)) {
    return;
  }
  const CoreSignals& core = signals_.cores[event.source.core];
  set(core.seq_pc, event.cycle, event.source.pc);
  set(core.seq_op_id, event.cycle, event.source.op_id);
  if (core.seq_op != kNoSignal) {
    set(core.seq_op, event.cycle, texts_.runs(*fst_, event.source));
  }
  ++queues_[event.source.core][event.source.unit].queued;
  show_queue(event.cycle, event.source.core, event.source.unit);
}

void BoardWaves::instruction(const InstructionEvent& event) {
  if (window_ != Window::kAfter) {  // its cycle may be ahead of simulated time
    set(signals_.cores[event.core].seq_pc, event.cycle, event.pc);
  }
}

void BoardWaves::wait(const WaitEvent& event) {
  if (!hear(event)) {
    return;
  }
  const CoreSignals& core = signals_.cores[event.source.core];
  if (event.source.unit == static_cast<uint32_t>(kSequencerUnit)) {
    const uint64_t state =
        static_cast<uint64_t>(WaveSequencerState::kWaits) + static_cast<uint64_t>(event.what);
    set(core.seq_pc, event.cycle, event.source.pc);
    set(core.seq_op_id, event.cycle, event.source.op_id);
    set(core.seq_state, event.cycle,
        event.begin ? state : static_cast<uint64_t>(WaveSequencerState::kRuns));
    set(core.seq_wait_index, event.cycle, event.index);
    set(core.seq_wait_value, event.cycle, event.wanted);
    if (core.seq_op != kNoSignal) {
      set(core.seq_op, event.cycle,
          event.begin ? texts_.waits(*fst_, event) : texts_.runs(*fst_, event.source));
    }
    return;
  }
  const QueueSignals& queue = core.queues[event.source.unit];
  Queue& known = queues_[event.source.core][event.source.unit];
  known.waits = event.begin;
  if (event.begin && queue.op != kNoSignal) {
    known.waiting = texts_.waits(*fst_, event);
  }
  set(queue.wait_semaphore, event.cycle, event.index);
  set(queue.wait_value, event.cycle, event.wanted);
  show_queue(event.cycle, event.source.core, event.source.unit);
}

// Of queues: what each one has, and does.
void BoardWaves::show_queue(uint64_t cycle, uint32_t core, uint32_t unit) {
  const Queue& queue = queues_[core][unit];
  const QueueSignals& signals = signals_.cores[core].queues[unit];
  WaveQueueState state = WaveQueueState::kIdle;
  if (queue.in_flight != 0) {
    state = WaveQueueState::kRuns;
  } else if (queue.waits) {
    state = WaveQueueState::kWaits;
  } else if (queue.queued != 0) {
    state = WaveQueueState::kQueued;
  }
  set(signals.queued, cycle, queue.queued);
  set(signals.in_flight, cycle, queue.in_flight);
  set(signals.busy, cycle, queue.in_flight != 0 ? 1 : 0);
  set(signals.state, cycle, static_cast<uint64_t>(state));
  if (signals.op != kNoSignal) {
    set(signals.op, cycle, text_of(queue, state));
  }
  if (queue.in_flight == 0) {
    set(signals.opcode, cycle, 0);
  }
}

uint32_t BoardWaves::text_of(const Queue& queue, WaveQueueState state) {
  switch (state) {
    case WaveQueueState::kIdle:
      break;
    case WaveQueueState::kQueued:
      return texts_.queued(*fst_);
    case WaveQueueState::kWaits:
      return queue.waiting;
    case WaveQueueState::kRuns:
      return queue.running;
  }
  return WaveTexts::kNothing;
}

void BoardWaves::start(const StartEvent& event) {
  if (!hear(event)) {
    return;
  }
  Queue& queue = queues_[event.source.core][event.source.unit];
  queue.queued -= std::min(queue.queued, 1U);
  if (++queue.in_flight == 1) {
    hold_verilog(event.source, event.cycle);
  }
  const QueueSignals& signals = signals_.cores[event.source.core].queues[event.source.unit];
  set(signals.opcode, event.cycle, event.source.opcode);
  set(signals.op_id, event.cycle, event.source.op_id);
  set(signals.pc, event.cycle, event.source.pc);
  if (signals.op != kNoSignal) {
    queue.running = texts_.runs(*fst_, event.source);
  }
  show_queue(event.cycle, event.source.core, event.source.unit);
}

void BoardWaves::done(const DoneEvent& event) {
  if (!hear(event)) {
    return;
  }
  Queue& queue = queues_[event.source.core][event.source.unit];
  queue.in_flight -= std::min(queue.in_flight, 1U);
  if (queue.in_flight == 0) {
    hold_verilog(event.source, FstProcess::kNone);
  }
  show_queue(event.cycle, event.source.core, event.source.unit);
}

// Of these only a trigger wants to know.
void BoardWaves::mark(const MarkEvent& event) { hear(event); }
void BoardWaves::non_finite(const NonFiniteEvent& event) { hear(event); }
void BoardWaves::assertion(const AssertionEvent& event) { hear(event); }

// While commands of a unit are under way its ports may change behind simulated time.
void BoardWaves::hold_verilog(const ProbeSource& source, uint64_t cycle) {
  const auto path = [&] {
    return core_path(options_.board, source.core) + "." +
           std::string(spec::kQueueNames[source.unit]);
  };
  for (uint32_t i = 0; i < verilog_.size(); ++i) {
    if (options_.verilog[i].path == path()) {
      fst_->hold(i, cycle);
    }
  }
}

void BoardWaves::show_ports(const std::string& path, const MxuPorts& ports) {
  for (uint32_t i = 0; i < verilog_.size(); ++i) {
    if (options_.verilog[i].path == path) {
      verilog_[i].show(*fst_, i, end_cycle_, ports);
    }
  }
}

void BoardWaves::show_operand(uint64_t cycle, const OperandSignals& signals,
                              const AccessRange& range) {
  set(signals.memory, cycle, static_cast<uint64_t>(range.memory));
  set(signals.core, cycle, range.owner);
  set(signals.address, cycle, range.low);
  set(signals.bytes, cycle, range.bytes);
}

void BoardWaves::access(const AccessEvent& event) {
  if (!hear(event) || event.source.unit == static_cast<uint32_t>(kSequencerUnit)) {
    return;
  }
  const QueueSignals& queue = signals_.cores[event.source.core].queues[event.source.unit];
  size_t read = 0;
  bool written = false;
  for (const AccessRange& range : event.extents) {
    if (range.write && !written) {
      written = true;
      show_operand(event.cycle, queue.write, range);
    } else if (!range.write && read < queue.reads.size()) {
      show_operand(event.cycle, queue.reads[read++], range);
    }
  }
}

void BoardWaves::add_rate(const Transfer& transfer, uint64_t cycle, uint64_t rate, bool remove) {
  const auto change = [&](uint32_t core, uint64_t Rates::*which, uint32_t CoreSignals::*signal) {
    uint64_t& sum = rates_[core].*which;
    sum = remove ? sum - rate : sum + rate;
    set(signals_.cores[core].*signal, cycle, per_kcycle(sum));
  };
  const uint32_t me = transfer.source.core;
  if (transfer.from.memory == ProbeMemory::kHbm && transfer.from.core == me) {
    change(me, &Rates::hbm_read, &CoreSignals::hbm_read_rate);
  }
  if (transfer.to.memory == ProbeMemory::kHbm) {
    change(transfer.to.core, &Rates::hbm_write, &CoreSignals::hbm_write_rate);
  }
  if (transfer.to.core != me) {
    change(me, &Rates::sent, &CoreSignals::ici_sent_rate);
    change(transfer.to.core, &Rates::received, &CoreSignals::ici_received_rate);
  }
}

void BoardWaves::flow(const FlowEvent& event) {
  if (!hear(event)) {
    return;
  }
  const QueueSignals& queue = signals_.cores[event.source.core].queues[event.source.unit];
  set(queue.bytes, event.cycle, event.bytes);
  set(queue.left, event.cycle, event.left);
  set(queue.rate, event.cycle, per_kcycle(event.rate));
  if (event.phase == FlowEvent::Phase::kBegin) {
    transfers_.push_back({event.source, event.from, event.to});
    return;
  }
  const auto transfer = std::ranges::find_if(transfers_, [&](const Transfer& each) {
    return each.source.core == event.source.core && each.source.sequence == event.source.sequence;
  });
  if (transfer == transfers_.end()) {
    return;
  }
  add_rate(*transfer, event.cycle, transfer->rate, true);
  if (event.phase == FlowEvent::Phase::kEnd) {
    set(queue.rate, event.cycle, 0);
    transfers_.erase(transfer);
  } else {
    transfer->rate = event.rate;
    add_rate(*transfer, event.cycle, event.rate, false);
  }
}

std::string BoardWaves::never_opened_text() const {
  std::string text = "waves: nothing was recorded in " + options_.path + ": ";
  if (by_steps(options_)) {
    text += "of the steps " + std::to_string(options_.first_step) + " to " +
            std::to_string(end_step(options_) - 1) + " none ran";
  } else {
    text += "the trigger " + options_.trigger + " never came" + trigger_.hint();
  }
  return text + "; the board ran " + spec::counted(begun_, "step") + ", counted from 0" +
         (by_steps(options_) ? " (those before a snapshot too); SimOptions::waves_steps chooses"
                             : "") +
         (options_.before_cycles == 0 ? "; the file stays, with no values"
                                      : "; the file has the last cycles of the run");
}

bool BoardWaves::never_opened() const {
  const bool recorder = options_.trigger.empty() && options_.before_cycles != 0;
  return !opened_ && !recorder;
}

std::string BoardWaves::finish() {
  if (fst_ == nullptr) {
    return error_;
  }
  tell_open(false);
  window_ = Window::kAfter;
  const std::string error = fst_->finish(true);
  error_ = error.empty() ? error_ : error;
  fst_.reset();
  if (error_.empty() && never_opened()) {
    error_ = never_opened_text();
  }
  return error_;
}

}  // namespace tpu::model
