// Control side of the sequencer: registers, start, stop, watchdog, interrupts.
#include <algorithm>

#include "core/sequencer.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/program_image.h"
#include "tpu/spec/rings.h"
#include "tpu/spec/seq_regs.hpp"

namespace tpu::model {
namespace {

namespace seq = spec::seq;

}  // namespace

void Sequencer::connect(const SequencerParts& parts) {
  parts_ = parts;
  watch_.connect(parts.gang_work, parts.ask_boards);
  registers_.connect(*parts.slots);
  queues_.connect(parts.queues);
  scalar_.connect(*parts.smem, parts.smem_unknown);
  scout_.connect(parts.behind_cut);
  parts_.semaphores->watch(task_, kSettled);
}

void Sequencer::start() {
  refused_ = state_ == seq::kStateRunning || !queues_.idle() || report_.pending();
  if (refused_) {
    return;
  }
  draining_ = false;
  registers_.clear_causes();
  fault_port->clear();
  parts_.semaphores->forget_waiters();
  queues_.resume();
  const uint64_t now = now_cycles();
  state_ = seq::kStateRunning;
  launch_.first_open_step = launch_.step;
  scalar_.start();
  time_ = now;
  charged_ = false;
  stall_.end();
  if (call_.end()) {
    lines_changed();
  }
  figures_.commands = 0;
  launch_.issued_before = issued_ever_;
  marks_.clear();
  scout_.start();
  launch_.job_step = parts_.steps->begin(core_id_, launch_.gang, launch_.launch, launch_.step);
  std::vector<AccessRange> fresh;
  probe_.program_begin(now, [&] {
    ProgramEvent event = program_event(true, false);
    fresh = parts_.slots->fresh(launch_, core_id_);
    event.fresh = fresh;
    return event;
  });
  activity_.set(true);
  if (!load_program()) {
    return;
  }
  pc_ = program_->entry();
  watch_.begin();
  if (registers_.watchdog_cycles() != 0) {
    watchdog_.set(registers_.watchdog_cycles());
  }
  task_.notify();
}

// Checks slots and image; decodes the image unless this address and version are known.
bool Sequencer::load_program() {
  pc_ = 0;
  const uint64_t address = registers_.program_address();
  const auto refuse = [&](uint32_t detail, std::string text, uint32_t slot = 0) {
    FaultInfo info;
    info.code = TPU_FAULT_DESCRIPTOR;
    info.detail = detail;
    info.slot = slot;
    info.address = address;
    fault_port->raise(info, std::move(text));
    return false;
  };
  const uint32_t bad = parts_.slots->check(launch_.slot_bank, launch_.slot_count);
  if (bad < launch_.slot_count) {
    return refuse(spec::fault::kDetailSlotTable,
                  "slot " + std::to_string(bad) + " of the slot table is invalid", bad);
  }
  const auto broken = [&](uint64_t bytes) {
    BitDamage* const damage = hbm_port->damage();
    const auto lost = damage != nullptr ? damage->read(address, bytes) : std::nullopt;
    if (lost) {
      FaultInfo info;
      info.code = TPU_FAULT_HBM_ECC;
      info.address = *lost;
      info.length = BitDamage::kWordBytes;
      info.slot = launch_.slot_count;
      fault_port->raise(info, "ECC cannot correct the word at " + std::to_string(*lost) +
                                  " of HBM, which belongs to the program");
    }
    return lost.has_value();
  };
  const auto known = loaded_.find(address);
  if (known != loaded_.end() && known->second.version == registers_.program_version()) {
    program_ = known->second.program;
    return !broken(known->second.bytes);
  }
  tpu_program_image_header_t header{};
  const uint64_t size = hbm_port->bytes();
  const auto loaded = [&](std::shared_ptr<const Program> program, uint64_t of_bytes) {
    program_ = std::move(program);
    loaded_[address] = {registers_.program_version(), of_bytes, program_};
    return true;
  };
  if (address > size || sizeof header > size - address) {
    return refuse(spec::fault::kDetailImage, "the program address is outside of HBM");
  }
  const auto header_bytes = std::as_writable_bytes(std::span(&header, 1));
  hbm_port->read(address, {reinterpret_cast<uint8_t*>(header_bytes.data()), header_bytes.size()});
  if (const auto error = Program::check_header(header_bytes); error) {
    return refuse(spec::fault::kDetailImage, error->text);
  }
  const uint64_t bytes = sizeof header + uint64_t{header.code_bytes};
  if (bytes > size - address) {
    return refuse(spec::fault::kDetailImage, "the program image ends outside of HBM");
  }
  if (broken(bytes)) {
    return false;
  }
  ImagePages pages(*hbm_port.operator->(), address, bytes);
  if (auto known_pages = parts_.programs->find(pages)) {
    return loaded(std::move(known_pages), bytes);
  }
  std::vector<std::byte> image(bytes);
  hbm_port->read(address, {reinterpret_cast<uint8_t*>(image.data()), image.size()});
  return loaded(parts_.programs->get(image, std::move(pages)), bytes);
}

void Sequencer::abort() {
  launch_.tag_open = false;
  if (state_ == seq::kStateRunning || draining_) {
    if (state_ == seq::kStateRunning) {
      stop(seq::kStateAborted);
    }
    return;
  }
  // Nothing runs: the hart still gets its DRAINED.
  state_ = seq::kStateAborted;
  draining_ = true;
  task_.notify();
}

void Sequencer::on_fault() {
  launch_.tag_open = false;
  if (report_.later()) {
    report_.begin();
  } else {
    registers_.raise(seq::kIrqStatusFaultMask);
  }
  if (state_ == seq::kStateRunning) {
    stop(seq::kStateFaulted);
  } else if (state_ != seq::kStateAborted && !draining_) {
    state_ = seq::kStateFaulted;
    draining_ = true;
    task_.notify();
  }
}

uint64_t Sequencer::silent() {
  if (draining_ || report_.pending() || *parts_.hung || call_.open()) {
    return 0;
  }
  if (state_ != seq::kStateRunning) {
    return queues_.idle() ? kNever : 0;  // a reset lets go what its engines have begun
  }
  const uint64_t now = now_cycles();
  const uint64_t wanted = std::min(now + report_.cycles(), watchdog_.at());
  const ProgramScout::Place place{.program = program_.get(),
                                  .pc = pc_,
                                  .scalars = &scalar_,
                                  .issued = issued_ever_,
                                  .replica = launch_.replica(),
                                  .cores = launch_.cores,
                                  .step = launch_.step};
  return std::min(wanted, scout_.silent(place, queues_, now, wanted));
}

void Sequencer::on_landed() {
  if (stall_.why() == Stall::kHalt || draining_) {
    task_.notify();
  }
}

ProgramEvent Sequencer::program_event(bool begin, bool complete) const {
  return {.cycle = now_cycles(),
          .core = core_id_,
          .gang = launch_.gang,
          .launch = launch_.launch,
          .launch_step = launch_.step,
          .step = launch_.job_step,
          .begin = begin,
          .complete = complete};
}

void Sequencer::stop(uint32_t state) {
  end_stall();
  if (call_.end()) {
    lines_changed();
  }
  state_ = state;
  *parts_.hung = false;
  probe_.program_end(now_cycles(), false, [&] { return program_event(false, false); });
  watchdog_.cancel();
  queues_.stop();
  draining_ = true;
  activity_.set(false);
  task_.notify();
}

void Sequencer::finish_program() {
  queues_.settle_data();  // who sees the end sees all results
  state_ = seq::kStateDone;
  launch_.first_open_step = launch_.step + 1;
  probe_.program_end(now_cycles(), true, [&] { return program_event(false, true); });
  watchdog_.cancel();
  registers_.raise(seq::kIrqStatusDoneMask);
  activity_.set(false);
  task_.wait();
}

void Sequencer::watchdog_method() {
  if (!watchdog_.due() || state_ != seq::kStateRunning || registers_.watchdog_cycles() == 0) {
    return;
  }
  watch_.look([this](bool still) {
    if (state_ != seq::kStateRunning) {
      return;
    }
    if (still) {
      fault_port->raise(
          fault_here(TPU_FAULT_WATCHDOG, 0),
          stall_.why() == Stall::kNone
              ? "the program runs scalar instructions only, now at word " + std::to_string(pc_)
              : "the sequencer waits at word " + std::to_string(pc_));
      return;
    }
    if (now_cycles() - probe_.counters().run_since() >=
        static_cast<uint64_t>(params_.mgmt.step_watchdogs) * registers_.watchdog_cycles()) {
      // Commands work and end, but the step does not: a loop that never ends.
      const LoopMarks::Position at = marks_.innermost();
      FaultInfo info = fault_here(TPU_FAULT_WATCHDOG, spec::fault::kDetailStepLimit);
      if (at.iteration != 0) {
        info.op_id = at.op;
        info.length = at.iteration;
      }
      fault_port->raise(
          info, "the step has run for " +
                    std::to_string(now_cycles() - probe_.counters().run_since()) +
                    " cycles and does not end" +
                    (at.iteration == 0 ? std::string()
                                       : ", now in iteration " + std::to_string(at.iteration) +
                                             " of op " + std::to_string(at.op)));
      return;
    }
    watchdog_.set(registers_.watchdog_cycles());
  });
}

void Sequencer::answer() {
  if (call_.answer()) {
    lines_changed();
    task_.notify();
  }
}

// Also at the cycle of a fault's report.
void Sequencer::irq_method() {
  if (report_.take_due()) {
    registers_.raise(seq::kIrqStatusFaultMask);
    if (draining_) {
      task_.notify();
    }
  }
  const uint32_t active = registers_.active_causes();
  done_irq_o.write((active & seq::kIrqStatusDoneMask) != 0);
  fault_irq_o.write((active & seq::kIrqStatusFaultMask) != 0);
  drained_irq_o.write((active & seq::kIrqStatusDrainedMask) != 0);
  call_irq_o.write(call_.open());
}

void Sequencer::reset() {
  if (state_ == seq::kStateRunning) {
    stop(seq::kStateIdle);
  }
  queues_.stop();
  report_.forget();
  fault_port->clear();
  parts_.semaphores->clear();
  scalar_.clear_memory();
  state_ = seq::kStateIdle;
  draining_ = false;
  refused_ = false;
  registers_.reset();
  loaded_.clear();
  // What the peers still send to this gang is told from an unknown one by the tag.
  launch_ = {.beyond = launch_.beyond,
             .tag = launch_.tag,
             .inbound = launch_.inbound,
             .unanswered = launch_.unanswered};
  irq_event_.notify(sc_core::SC_ZERO_TIME);
}

// The lines follow in the next delta cycle.
void Sequencer::visit_state(spec::Archive& archive) {
  archive(registers_, state_, refused_, scalar_, pc_, time_, charged_, figures_.call,
          figures_.commands, issued_ever_, watch_);
  archive.need(state_ <= seq::kStateAborted && state_ != seq::kStateRunning && is_near(time_),
               "a sequencer is in a state that cannot be saved");
  if (archive.loading()) {
    irq_event_.notify(sc_core::SC_ZERO_TIME);
  }
}

uint32_t Sequencer::state_register() const {
  return state_ |
         (queues_.idle() && launch_.settled() && !report_.pending() ? 0 : seq::kStateBusyMask) |
         (refused_ ? seq::kStateRefusedMask : 0);
}

}  // namespace tpu::model
