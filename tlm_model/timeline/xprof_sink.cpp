// What XProf asks for: its names of planes, lines and statistics.
#include "timeline/xprof_sink.hpp"

#include <algorithm>
#include <utility>

#include "board/board_loader.hpp"
#include "board/chip_kind.hpp"
#include "exe/executable.hpp"
#include "timeline/hlo_memory.hpp"
#include "timeline/op_category.hpp"

namespace tpu::model {
namespace {

constexpr double kAllPercent = 100.0;
constexpr uint64_t kFirstCorePlane = 2;
// The consumer of an event that the host's profile calls its producer: of the ContextTypes in
// tsl/profiler/lib/context_types.h.
constexpr int64_t kPjrtLibraryCall = 14;

// Of what nothing names: by the foremost engine.
std::string category_of(size_t rank) {
  if (rank >= spec::OpSpans::kRank.size()) {
    return "unknown";
  }
  switch (spec::kQueues[static_cast<size_t>(spec::OpSpans::kRank[rank])].engine) {
    case spec::Engine::kMxu:
      return "convolution";
    case spec::Engine::kVpu:
      return "loop fusion";
    case spec::Engine::kXlu:
      return "data formatting";
    case spec::Engine::kDmaRemote:
      return "collective-permute";
    default:
      return "copy";
  }
}

std::string name_of(const exe::ExecutableT* executable) {
  return executable == nullptr ? "program" : executable->name;
}

// As XProf finds a module: by its name and number.
std::string module_name(const exe::ExecutableT* executable, size_t index) {
  return name_of(executable) + "(" + std::to_string(index + 1) + ")";
}

// MemoryAccessBreakdown
std::string memory_accesses(uint64_t read, uint64_t written) {
  constexpr uint64_t kRead = 1, kWrite = 2, kHbm = 1;
  spec::ProtoWriter out;
  for (const auto& [kind, bytes] : {std::pair(kRead, read), std::pair(kWrite, written)}) {
    out.message(1, [&, kind = kind, bytes = bytes] {
      out.number(1, kind);
      out.number(2, kHbm);
      out.number(3, bytes);
    });
  }
  return out.take();
}

}  // namespace

XprofSink::XprofSink(const spec::BoardParams& params, uint64_t first_step, uint64_t steps,
                     const LaunchPrograms& programs, size_t most_spans)
    : params_(params),
      first_step_(first_step),
      end_step_(first_step + std::min(steps, UINT64_MAX - first_step)),
      launches_(programs),
      most_spans_(most_spans),
      cores_(static_cast<size_t>(spec::core_count(params))) {}

size_t XprofSink::program_of(uint32_t launch) {
  auto executable = launches_.of(launch);
  const auto known = std::ranges::find(programs_, executable, &Program::executable);
  if (known != programs_.end()) {
    return static_cast<size_t>(known - programs_.begin());
  }
  programs_.push_back({std::move(executable)});
  return programs_.size() - 1;
}

void XprofSink::program(const ProgramEvent& event) {
  Core& core = cores_.at(event.core);
  if (event.begin) {
    const bool inside = event.step >= first_step_ && event.step < end_step_;
    core.in_step = inside && spans_ < most_spans_;
    if (core.in_step) {
      core.foremost.begin_step(event.cycle);
      core.steps.push_back({event.step, program_of(event.launch),
                            launches_.trace_context_of(event.launch), event.cycle, event.cycle,
                            core.spans.size()});
      has_contexts_ |= core.steps.back().trace_context != 0;
      base_ = std::min(base_, event.cycle);
    } else if (inside) {
      ++left_out_;
    }
  } else if (core.in_step) {
    add(core, core.foremost.end_step(event.cycle));
    core.steps.back().end = event.cycle;
    core.in_step = false;
  }
}

XprofSink::OpTotals& XprofSink::totals(const Core& core, uint32_t op_id) {
  return programs_[core.steps.back().program].ops[op_id];
}

// Spans of one operation that touch are one.
void XprofSink::add(Core& core, const spec::OpSpan& span) {
  if (span.empty() || span.op_id == spec::OpSpan::kNone) {
    return;
  }
  if (core.spans.size() > core.steps.back().spans) {
    spec::OpSpan& last = core.spans.back();
    if (last.op_id == span.op_id && last.end == span.begin) {
      last.end = span.end;
      return;
    }
  }
  core.spans.push_back(span);
  ++totals(core, span.op_id).spans;
  ++spans_;
}

void XprofSink::flow(const FlowEvent& event) {
  const Core& core = cores_.at(event.source.core);
  if (!core.in_step || event.phase != FlowEvent::Phase::kBegin) {
    return;
  }
  OpTotals& op = totals(core, event.source.op_id);
  op.hbm_read += event.from.memory == ProbeMemory::kHbm ? event.bytes : 0;
  op.hbm_written += event.to.memory == ProbeMemory::kHbm ? event.bytes : 0;
  op.to_cores += event.to.core != event.source.core ? event.bytes : 0;
}

void XprofSink::start(const StartEvent& event) {
  Core& core = cores_.at(event.source.core);
  if (!core.in_step || !spec::OpSpans::works(event.source.opcode)) {
    return;
  }
  add(core, core.foremost.start(event.cycle,
                                {event.source.unit, event.source.sequence, event.source.op_id}));
  OpTotals& op = totals(core, event.source.op_id);
  op.flops += event.flops;
  const auto rank = static_cast<size_t>(
      std::ranges::find(spec::OpSpans::kRank, static_cast<spec::Queue>(event.source.unit)) -
      spec::OpSpans::kRank.begin());
  op.rank = std::min(op.rank, rank);
}

void XprofSink::done(const DoneEvent& event) {
  Core& core = cores_.at(event.source.core);
  if (core.in_step && spec::OpSpans::works(event.source.opcode) &&
      core.foremost.under_way(event.source.unit, event.source.sequence)) {
    add(core, core.foremost.done(event.cycle, event.source.unit, event.source.sequence));
  }
}

// A cycle lasts 10^6 / MHz picoseconds; only the whole time is rounded, so nothing drifts.
uint64_t XprofSink::picoseconds(uint64_t cycle) const {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(cycle - base_) * 1'000'000U /
                               static_cast<uint64_t>(params_.core.clock_mhz));
}

void XprofSink::add_core_stats(XPlane& plane, size_t index) const {
  const auto cores = static_cast<size_t>(params_.board.cores_per_chip);
  const auto ghz = static_cast<double>(params_.core.clock_mhz) * 1e-3;
  const auto flops =
      static_cast<double>(2 * params_.core.mxus * params_.mxu.rows * params_.mxu.cols);
  const double bandwidth = static_cast<double>(params_.hbm.gbps_per_chip);
  plane.add_stat({"device_type_string", spec::chip_kind(params_)});
  plane.add_stat({"peak_teraflops_per_second", flops * ghz * 1e-3});
  plane.add_stat({"peak_hbm_bw_gigabytes_per_second", bandwidth / static_cast<double>(cores)});
  for (const char* none :
       {"peak_sram_rd_bw_gigabytes_per_second", "peak_sram_wr_bw_gigabytes_per_second",
        "peak_cmem_rd_bw_gigabytes_per_second", "peak_cmem_wr_bw_gigabytes_per_second",
        "peak_vmem_rd_bw_gigabytes_per_second", "peak_vmem_wr_bw_gigabytes_per_second"}) {
    plane.add_stat({none, 0.0});
  }
  plane.add_stat({"has_megacore", uint64_t{0}});
  plane.add_stat({"has_merged_vmem", uint64_t{0}});
  spec::ProtoWriter details;  // CoreDetails
  details.number(2, index);
  details.number(3, index % cores);
  details.number(4, index / cores);
  details.number(5, index / cores);
  details.number(6, index);
  plane.add_stat({"core_details", XPlane::Bytes{details.take()}});
}

// A figure of one event: all events of an operation together give what was counted.
XPlane::Stats XprofSink::op_stats(const Program& program, size_t number, uint32_t op_id,
                                  const OpTotals& op) const {
  const exe::ExecutableT* executable = program.executable.get();
  const uint64_t events = std::max<uint64_t>(1, op.spans);
  const uint64_t read = op.hbm_read / events;
  const uint64_t written = op.hbm_written / events;
  const bool named = executable != nullptr && op_id < executable->ops.size();
  const std::string name = op_name(executable, op_id);
  XPlane::Stats stats = {
      {"program_id", uint64_t{number + 1}},
      {"symbol_id", uint64_t{op_id} + 1},
      {"hlo_category", named ? hlo_category(name) : category_of(op.rank)},
      {"flops", op.flops / events},
      {"model_flops", op.flops / events},
      {"bytes_accessed", read + written + op.to_cores / events},
      {"memory_access_breakdown", XPlane::Bytes{memory_accesses(read, written)}},
      {"tf_op", name_of(executable) + "/" + name + (named ? ":" + op_type(name) : "")},
      {"deduplicated_name", name},
  };
  if (named && !executable->ops[op_id]->file.empty()) {
    const exe::OpInfoT& info = *executable->ops[op_id];
    const std::string source = info.file + ":" + std::to_string(info.line);
    stats.push_back({"source", source});
    stats.push_back({"source_stack", source});
  }
  return stats;
}

// Names are unique in a program: the viewer puts operations of one name together.
XprofSink::OpEvents XprofSink::add_ops(XPlane& plane, const Program& program, size_t number) const {
  OpEvents events;
  for (const auto& [op_id, op] : program.ops) {
    const exe::ExecutableT* executable = program.executable.get();
    events[op_id] =
        plane.add_metadata("%" + op_event_name(executable, op_id), op_name(executable, op_id),
                           op_stats(program, number, op_id, op));
  }
  return events;
}

// XProf groups events itself unless a profile has groups: by the caller's events, if it has any.
XPlane::Stats XprofSink::group_stats(const Step& step) const {
  return has_contexts_ ? XPlane::Stats()
                       : XPlane::Stats{{"group_id", static_cast<int64_t>(step.number)}};
}

void XprofSink::add_steps(XPlane& plane, const Core& core) const {
  plane.begin_line("Steps");
  for (const Step& step : core.steps) {
    const std::string number = std::to_string(step.number);
    XPlane::Stats stats = group_stats(step);
    if (step.trace_context != 0) {
      stats.push_back({"_ct", kPjrtLibraryCall});
      stats.push_back({"_c", step.trace_context});
    }
    plane.add_event(plane.add_metadata(number, number, {}), picoseconds(step.begin),
                    picoseconds(step.end) - picoseconds(step.begin), stats);
  }
  plane.end_line();
}

void XprofSink::add_modules(XPlane& plane, const Core& core) const {
  std::vector<uint64_t> modules;
  for (size_t i = 0; i < programs_.size(); ++i) {
    const std::string name = name_of(programs_[i].executable.get());
    modules.push_back(plane.add_metadata(module_name(programs_[i].executable.get(), i), name,
                                         {{"program_id", uint64_t{i + 1}}}));
  }
  plane.begin_line("XLA Modules");
  for (const Step& step : core.steps) {
    XPlane::Stats stats = group_stats(step);
    stats.push_back({"run_id", step.number});
    plane.add_event(modules[step.program], picoseconds(step.begin),
                    picoseconds(step.end) - picoseconds(step.begin), stats);
  }
  plane.end_line();
}

void XprofSink::add_op_events(XPlane& plane, const Core& core) const {
  std::vector<OpEvents> events;
  for (size_t i = 0; i < programs_.size(); ++i) {
    events.push_back(add_ops(plane, programs_[i], i));
  }
  plane.begin_line("XLA Ops");
  for (size_t i = 0; i < core.steps.size(); ++i) {
    const Step& step = core.steps[i];
    const size_t end = i + 1 < core.steps.size() ? core.steps[i + 1].spans : core.spans.size();
    const XPlane::Stats stats = group_stats(step);
    for (size_t k = step.spans; k < end; ++k) {
      const spec::OpSpan& span = core.spans[k];
      plane.add_event(events[step.program].at(span.op_id), picoseconds(span.begin),
                      picoseconds(span.end) - picoseconds(span.begin), stats);
    }
  }
  plane.end_line();
}

std::string XprofSink::core_plane(size_t index) const {
  XPlane plane(kFirstCorePlane + index, "/device:TPU:" + std::to_string(index));
  add_core_stats(plane, index);
  add_steps(plane, cores_[index]);
  add_modules(plane, cores_[index]);
  add_op_events(plane, cores_[index]);
  return plane.take();
}

// Use of matrix units and HBM while steps ran.
std::string XprofSink::host_plane() const {
  double cycles = 0;
  double flops = 0;
  double bytes = 0;
  for (const Core& core : cores_) {
    for (const Step& step : core.steps) {
      cycles += static_cast<double>(step.end - step.begin);
    }
  }
  for (const Program& program : programs_) {
    for (const auto& [op_id, op] : program.ops) {
      flops += static_cast<double>(op.flops);
      bytes += static_cast<double>(op.hbm_read + op.hbm_written);
    }
  }
  const auto most_flops =
      static_cast<double>(2 * params_.core.mxus * params_.mxu.rows * params_.mxu.cols);
  const double most_bytes =  // a cycle
      static_cast<double>(params_.hbm.gbps_per_chip) * 1e3 /
      static_cast<double>(params_.core.clock_mhz * params_.board.cores_per_chip);
  XPlane plane(1, "/host:CPU");
  if (cycles > 0) {
    plane.add_stat(
        {"matrix_unit_utilization_percent", kAllPercent * flops / (cycles * most_flops)});
    plane.add_stat({"hbm_utilization_percent", kAllPercent * bytes / (cycles * most_bytes)});
  }
  return plane.take();
}

// What is known of the programs without running them. The numbers of their entries are those of
// "program_id".
std::string XprofSink::metadata_plane() const {
  XPlane plane(kFirstCorePlane + cores_.size(), "/host:metadata");
  for (size_t i = 0; i < programs_.size(); ++i) {
    const exe::ExecutableT* executable = programs_[i].executable.get();
    const std::string name = module_name(executable, i);
    XPlane::Stats stats;
    if (executable != nullptr) {
      stats.push_back({"Hlo Proto", XPlane::Bytes{hlo_proto(*executable, i + 1)}});
    }
    plane.add_metadata(name, name, stats);
  }
  return plane.take();
}

std::string XprofSink::take_xspace() {
  for (Core& core : cores_) {
    if (core.in_step) {
      core.spans.resize(core.steps.back().spans);
      core.steps.pop_back();
    }
  }
  spec::ProtoWriter space;
  if (base_ != UINT64_MAX) {
    space.text(1, host_plane());
    space.text(1, metadata_plane());
    for (size_t index = 0; index < cores_.size(); ++index) {
      if (!cores_[index].steps.empty()) {
        space.text(1, core_plane(index));
      }
    }
    if (left_out_ != 0) {
      space.text(3, std::to_string(left_out_) +
                        " steps of cores were left out: the profile is full; profile fewer steps");
    }
    space.text(4, "tpuboard");
  }
  cores_.assign(cores_.size(), Core());
  programs_.clear();
  spans_ = 0;
  left_out_ = 0;
  has_contexts_ = false;
  base_ = UINT64_MAX;
  return space.take();
}

}  // namespace tpu::model
