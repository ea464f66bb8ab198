// One list of fields a type serves writing and reading.
#include "job/snapshot.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "format/json_input.hpp"
#include "tpu/error.hpp"

namespace tpu::monitor {
namespace {

using Json = nlohmann::ordered_json;
using driver::JsonInput;

constexpr int kFormat = 1;

struct Writer {
  Json& json;
  template <class T>
  void operator()(const char* name, const T& value) const {
    json[name] = value;
  }
  template <class T>
  void operator()(const char* name, const std::optional<T>& value) const {
    json[name] = value ? Json(*value) : Json();
  }
  void operator()(const char* name, const NamedValues& values) const {
    Json& object = json[name] = Json::object();
    for (const auto& [key, value] : values) {
      object[key] = value;
    }
  }
};

struct Reader {
  const JsonInput& json;
  template <class T>
  void operator()(const char* name, T& value) const {
    value = json.at(name).as<T>();
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) const {
    const JsonInput member = json.at(name);
    value = member.is_null() ? std::nullopt : std::optional<T>(member.as<T>());
  }
  void operator()(const char* name, NamedValues& values) const {
    for (const auto& [key, value] : json.at(name).members()) {
      // JSON has no word for what is not a number.
      values.emplace_back(key, value.is_null() ? std::nan("") : value.as<double>());
    }
  }
};

template <class Field, class Core>
void core_fields(const Field& field, Core& core) {
  field("chip", core.chip);
  field("programs", core.programs);
  field("mxu_flops", core.mxu_flops);
  field("hbm_read_bytes", core.hbm_read_bytes);
  field("hbm_written_bytes", core.hbm_written_bytes);
  field("link_sent_bytes", core.link_sent_bytes);
  field("link_received_bytes", core.link_received_bytes);
  field("hbm_used", core.hbm_used);
  field("hbm_bytes", core.hbm_bytes);
  field("compute_cycles", core.times.compute);
  field("links_cycles", core.times.links);
  field("hbm_cycles", core.times.hbm);
  field("stalled_cycles", core.times.stalled);
  field("input_cycles", core.times.input);
  field("host_cycles", core.times.host);
}

template <class Field, class Shot>
void job_fields(const Field& field, Shot& shot) {
  field("pid", shot.pid);
  field("process_start", shot.process_start);
  field("command", shot.command);
  field("board", shot.board);
  field("clock_hz", shot.clock_hz);
  field("peak_flops_per_cycle", shot.peak_flops_per_cycle);
  field("started", shot.started);
  field("taken", shot.taken);
  field("cycles", shot.cycles);
}

template <class Field, class P>
void progress_fields(const Field& field, P& progress) {
  field("step", progress.step);
  field("steps", progress.steps);
  field("epoch", progress.epoch);
  field("loss", progress.loss);
  field("values", progress.values);
}

template <class Field, class Tally>
void fault_fields(const Field& field, Tally& tally) {
  field("kind", tally.kind);
  field("place", tally.place);
  field("fired", tally.fired);
  field("seen", tally.seen);
}

template <class Field, class Shares>
void share_fields(const Field& field, Shares& time) {
  field("compute", time.compute);
  field("links", time.links);
  field("hbm", time.hbm);
  field("stalled", time.stalled);
  field("input", time.input);
  field("host", time.host);
}

template <class Field, class F>
void figure_fields(const Field& field, F& figures) {
  field("seconds", figures.seconds);
  field("board_seconds", figures.board_seconds);
  field("mxu", figures.mxu);
  field("steps_per_second", figures.steps_per_second);
  field("left_seconds", figures.left_seconds);
}

template <class Field, class Core>
void core_figure_fields(const Field& field, Core& core) {
  field("mxu", core.mxu);
  field("hbm_gbps", core.hbm_gbps);
  field("link_gbps", core.link_gbps);
}

Json shares_json(const TimeShares& time) {
  Json json;
  share_fields(Writer{json}, time);
  return json;
}

template <class T, class Fields>
T read(const JsonInput& json, const Fields& fields) {
  T value;
  fields(Reader{json}, value);
  return value;
}

TimeShares read_shares(const JsonInput& json) {
  return read<TimeShares>(json, [](const auto& field, auto& to) { share_fields(field, to); });
}

Figures read_figures(const JsonInput& json) {
  auto figures = read<Figures>(json, [](const auto& field, auto& to) { figure_fields(field, to); });
  figures.time = read_shares(json.at("time"));
  for (const JsonInput& each : json.at("cores").elements()) {
    figures.cores.push_back(read<CoreFigures>(
        each, [](const auto& field, auto& to) { core_figure_fields(field, to); }));
    figures.cores.back().time = read_shares(each.at("time"));
  }
  return figures;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

template <class Count>
double grown(const Count& from, const Count& to) {
  return to > from ? static_cast<double>(to - from) : 0;
}

TimeShares shares_between(const driver::CoreTimes& from, const driver::CoreTimes& to) {
  TimeShares time{grown(from.compute, to.compute), grown(from.links, to.links),
                  grown(from.hbm, to.hbm),         grown(from.stalled, to.stalled),
                  grown(from.input, to.input),     grown(from.host, to.host)};
  const double all = time.compute + time.links + time.hbm + time.stalled + time.input + time.host;
  for (double* part :
       {&time.compute, &time.links, &time.hbm, &time.stalled, &time.input, &time.host}) {
    *part = ratio(*part, all);
  }
  return time;
}

void add_part(TimeShares& to, const TimeShares& time, double weight) {
  to.compute += weight * time.compute;
  to.links += weight * time.links;
  to.hbm += weight * time.hbm;
  to.stalled += weight * time.stalled;
  to.input += weight * time.input;
  to.host += weight * time.host;
}

// Of the snapshots; without a step between them, of the whole run.
void add_steps(Figures& figures, const Snapshot& from, const Snapshot& to) {
  const int64_t before = from.progress ? from.progress->step : 0;
  const int64_t now = to.progress ? to.progress->step : 0;
  figures.steps_per_second = ratio(grown(before, now), figures.seconds);
  if (figures.steps_per_second == 0) {
    figures.steps_per_second = ratio(static_cast<double>(now), to.taken - to.started);
  }
  if (to.progress && to.progress->steps > 0 && figures.steps_per_second > 0) {
    figures.left_seconds = grown(now, to.progress->steps) / figures.steps_per_second;
  }
}

}  // namespace

Figures figures(const Snapshot& from, const Snapshot& to) {
  Figures figures;
  figures.seconds = to.taken - from.taken;
  const double cycles = grown(from.cycles, to.cycles);
  figures.board_seconds = ratio(cycles, to.clock_hz);
  size_t working = 0;
  for (const CoreSnapshot& core : to.cores) {
    working += core.programs > 0 ? 1 : 0;
  }
  for (size_t i = 0; i < to.cores.size(); ++i) {
    const CoreSnapshot& before = i < from.cores.size() ? from.cores[i] : CoreSnapshot();
    const CoreSnapshot& now = to.cores[i];
    CoreFigures core;
    core.mxu = ratio(grown(before.mxu_flops, now.mxu_flops),
                     cycles * static_cast<double>(to.peak_flops_per_cycle));
    core.time = shares_between(before.times, now.times);
    core.hbm_gbps = ratio(grown(before.hbm_read_bytes, now.hbm_read_bytes) +
                              grown(before.hbm_written_bytes, now.hbm_written_bytes),
                          figures.board_seconds * 1e9);
    core.link_gbps =
        ratio(grown(before.link_sent_bytes, now.link_sent_bytes), figures.board_seconds * 1e9);
    // Cores that the job has not used say nothing of it.
    if (working == 0 || now.programs > 0) {
      const double weight = 1.0 / static_cast<double>(working == 0 ? to.cores.size() : working);
      figures.mxu += weight * core.mxu;
      add_part(figures.time, core.time, weight);
    }
    figures.cores.push_back(core);
  }
  add_steps(figures, from, to);
  return figures;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string json_line(const Report& report) {
  Json json = {{"format", kFormat}};
  job_fields(Writer{json}, report.now);
  Json& progress = json["progress"] = nullptr;
  if (report.now.progress) {
    progress_fields(Writer{progress}, *report.now.progress);
  }
  Json& lately = json["lately"];
  figure_fields(Writer{lately}, report.lately);
  lately["idle"] = report.lately.time.idle();
  lately["time"] = shares_json(report.lately.time);
  lately["cores"] = Json::array();
  for (const CoreFigures& core : report.lately.cores) {
    Json& each = lately["cores"].emplace_back();
    core_figure_fields(Writer{each}, core);
    each["idle"] = core.time.idle();
    each["time"] = shares_json(core.time);
  }
  json["cores"] = Json::array();
  for (const CoreSnapshot& core : report.now.cores) {
    core_fields(Writer{json["cores"].emplace_back()}, core);
  }
  for (const spec::FaultTally& tally : report.now.faults) {
    fault_fields(Writer{json["faults"].emplace_back()}, tally);
  }
  // A command line may hold any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Report report_from(const std::string& text, const std::string& name) {
  try {
    const Json whole = JsonInput::parse(text);
    const JsonInput json(whole);
    if (const auto format = json.at("format").as<int64_t>(); format != kFormat) {
      throw driver::Error(
          driver::ErrorCode::kInvalidArgument,
          fmt::format("{}: written by another version of tpuboard: expected format {}, found {}",
                      name, kFormat, format));
    }
    Report report;
    report.now = read<Snapshot>(json, [](const auto& field, auto& to) { job_fields(field, to); });
    for (const JsonInput& core : json.at("cores").elements()) {
      report.now.cores.push_back(
          read<CoreSnapshot>(core, [](const auto& field, auto& to) { core_fields(field, to); }));
    }
    if (const JsonInput progress = json.at("progress"); !progress.is_null()) {
      report.now.progress =
          read<Progress>(progress, [](const auto& field, auto& to) { progress_fields(field, to); });
    }
    if (const JsonInput faults = json.at("faults"); faults.there()) {
      for (const JsonInput& tally : faults.elements()) {
        report.now.faults.push_back(read<spec::FaultTally>(
            tally, [](const auto& field, auto& to) { fault_fields(field, to); }));
      }
    }
    report.lately = read_figures(json.at("lately"));
    return report;
  } catch (const driver::JsonInputError& error) {
    throw driver::Error(
        driver::ErrorCode::kInvalidArgument,
        fmt::format("{}: does not hold the metrics of a job: {}; delete it", name, error.what()));
  }
}

}  // namespace tpu::monitor
