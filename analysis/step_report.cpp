// JSON of a report; the page is a file that takes it in.
#include "analysis/step_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/accounts.hpp"
#include "analysis/op_class.hpp"
#include "analysis/replay_program.hpp"
#include "analysis/retime.hpp"
#include "analysis/what_if.hpp"
#include "board/board_loader.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPieces = 300;  // of the critical path
constexpr size_t kMostPoints = 500;  // of a curve

constexpr std::string_view kPage =
#include "page_html.inc"
    ;
constexpr std::string_view kPlace = "/*report*/null";  // in the page

class Report {
 public:
  Report(const spec::StepRecord& record, unsigned threads)
      : record_(record),
        board_(spec::board_of(record)),
        threads_(threads),
        account_(account(record, threads)),
        cores_(static_cast<double>(record.cores.size())) {}

  Json run(size_t changes, const ReportWatch& watch) {
    const auto early = [&](Json json, std::string_view to_come) {
      json[std::string(to_come)] = true;
      watch.early(json);
    };
    early(figures(), "causes_to_come");
    const ReplayProgram program(record_);
    timing_ = retime(program, no_change(record_));
    find_causes(record_, *timing_, account_);
    path_ = critical_path(record_, *timing_);
    Json json = figures();
    json["changes"] = Json::array();
    if (changes != 0) {
      early(json, "changes_to_come");
    }
    for (const WhatIf& change :
         best_changes(record_, program, account_, *timing_, changes, threads_, watch.done)) {
      json["changes"].push_back({{"name", change.name},
                                 {"source", source_of(change.op)},
                                 {"is_op", change.op != spec::kNoRecordedOp},
                                 {"removed", change.removed},
                                 {"cycles_without", change.cycles_without},
                                 {"halved", change.halved},
                                 {"cycles_at_half", change.cycles_at_half},
                                 {"halved_skew", change.halved_skew}});
    }
    return json;
  }

 private:
  // All but what would shorten it; without the re-timed step, what can be told without it.
  Json figures() const {
    Json json = head();
    json["notes"] = record_.notes;
    json["faults"] = faults();
    json["kinds"] = kTimeKindNames;
    if (timing_) {
      json["kinds"].erase(static_cast<size_t>(TimeKind::kWait));
    }
    json["idle_kinds_from"] = static_cast<size_t>(TimeKind::kIssue);
    json["average"] = average();
    json["classes"] = classes();
    json["cores"] = Json::array();
    for (size_t i = 0; i < record_.cores.size(); ++i) {
      json["cores"].push_back(core(i));
    }
    json["chips"] = chips();
    json["links"] = links();
    json["ops"] = ops();
    json["exchanges"] = exchanges();
    json["host_transfers"] = host_transfers();
    json["roofline"] = {{"peak_flops", most_flops() * clock()},
                        {"hbm_bytes", most_hbm() * clock()}};
    json["memory"] = memory();
    if (timing_) {
      json["critical_path"] = path();
    }
    return json;
  }

  // Cycles from the begin of the step.
  Json faults() const {
    Json all = Json::array();
    for (const spec::RecordedFault& fault : record_.faults) {
      all.push_back({{"cycle", fault.cycle - record_.begin()},
                     {"core", fault.core},
                     {"damage", fault.damage != 0},
                     {"kind", fault.kind},
                     {"place", fault.place},
                     {"text", fault.text}});
    }
    return all;
  }

  double clock() const { return static_cast<double>(board_.core.clock_mhz) * 1e6; }
  // Of a core and cycle.
  double most_flops() const {
    return static_cast<double>(2 * board_.core.mxus * board_.mxu.rows * board_.mxu.cols);
  }
  double most_hbm() const {
    return static_cast<double>(board_.hbm.gbps_per_chip * board_.hbm.efficiency_percent) * 1e7 /
           (clock() * static_cast<double>(board_.board.cores_per_chip));
  }
  double step_cycles() const { return static_cast<double>(account_.cycles); }

  Json head() const {
    const auto recorded = static_cast<double>(account_.cycles);
    Json json = {{"program", record_.program}, {"board", board_.board.name},
                 {"step", record_.step},       {"clock_mhz", board_.core.clock_mhz},
                 {"cycles", account_.cycles},  {"seconds", recorded / clock()}};
    if (timing_) {
      const auto cycles = timing_->cycles();
      json["retimed"] = {{"cycles", cycles}, {"error", static_cast<double>(cycles) / recorded - 1}};
    }
    json["torus_x"] = spec::chips_x(board_);
    json["cores_per_chip"] = board_.board.cores_per_chip;
    json["overrides"] = record_.board;
    return json;
  }

  static Json by_kind(const KindCycles& cycles, double divisor) {
    Json json = Json::object();
    for (size_t k = 0; k < kTimeKinds; ++k) {
      if (cycles[k] != 0) {
        json[std::string(kTimeKindNames[k])] = static_cast<double>(cycles[k]) / divisor;
      }
    }
    return json;
  }

  Json average() const {
    KindCycles sum{};
    for (const CoreAccount& each : account_.cores) {
      for (size_t k = 0; k < kTimeKinds; ++k) {
        sum[k] += each.cycles[k];
      }
    }
    return by_kind(sum, cores_);
  }

  Json core(size_t index) const {
    const CoreAccount& each = account_.cores[index];
    Json busy = Json::object();
    for (size_t q = 0; q < each.busy.size(); ++q) {
      if (spec::has_queue(board_, q)) {
        busy[std::string(spec::kQueueNames[q])] = static_cast<double>(each.busy[q]) / step_cycles();
      }
    }
    const spec::RecordedCore& recorded = record_.cores[index];
    return {{"core", recorded.core},
            {"begin", recorded.begin - record_.begin()},
            {"end", recorded.end - record_.begin()},
            {"cycles", by_kind(each.cycles, 1)},
            {"busy", busy},
            {"mxu", static_cast<double>(each.flops) / (step_cycles() * most_flops())},
            {"hbm_bytes", each.hbm_bytes}};
  }

  Json chips() const {
    Json json = Json::array();
    const double most =
        most_hbm() * static_cast<double>(board_.board.cores_per_chip) * step_cycles();
    for (const uint64_t bytes : account_.chip_hbm_bytes) {
      json.push_back({{"hbm_bytes", bytes}, {"hbm", static_cast<double>(bytes) / most}});
    }
    return json;
  }

  Json links() const {
    Json json = Json::array();
    const double most = static_cast<double>(board_.ici.link_gbps * board_.ici.efficiency_percent) *
                        1e7 / clock() * step_cycles();
    for (const LinkAccount& link : account_.links) {
      json.push_back({{"chip", link.chip},
                      {"axis", link.y ? "y" : "x"},
                      {"up", link.up},
                      {"bytes", link.bytes},
                      {"use", static_cast<double>(link.bytes) / most}});
    }
    return json;
  }

  OpClass class_of(uint32_t op) const {
    return op < record_.ops.size() ? class_of_op(record_.ops[op].name) : OpClass::kOther;
  }

  // Cycles of a core on average, which sum to the step, and those of the critical path.
  Json classes() const {
    std::array<double, kOpClasses> cycles{}, path{};
    for (const auto& [id, op] : account_.ops) {
      cycles[static_cast<size_t>(class_of(id))] += static_cast<double>(op.total()) / cores_;
    }
    const double charged = std::accumulate(cycles.begin(), cycles.end(), 0.0);
    cycles[static_cast<size_t>(OpClass::kIdle)] = step_cycles() - charged;
    for (const PathPiece& piece : path_) {
      const bool idle = piece.kind >= TimeKind::kIssue;
      path[static_cast<size_t>(idle ? OpClass::kIdle : class_of(piece.op))] +=
          static_cast<double>(piece.end - piece.begin);
    }
    Json json = Json::object();
    for (size_t c = 0; c < kOpClasses; ++c) {
      if (cycles[c] != 0 || path[c] != 0) {
        json[std::string(kOpClassNames[c])] = {{"cycles", cycles[c]}, {"critical_path", path[c]}};
      }
    }
    return json;
  }

  std::string name_of(uint32_t op) const {
    const bool known = op < record_.ops.size() && !record_.ops[op].name.empty();
    return known                       ? record_.ops[op].name
           : op == spec::kNoRecordedOp ? std::string()
                                       : fmt::format("op {}", op);
  }
  std::string source_of(uint32_t op) const {
    const bool known = op < record_.ops.size() && !record_.ops[op].file.empty();
    return known ? fmt::format("{}:{}", record_.ops[op].file, record_.ops[op].line) : "";
  }

  // The engine or memory that most of its cycles went to; of one that others hide, nothing.
  static std::string bound_by(const OpAccount& op) {
    const auto most = std::ranges::max_element(op.cycles);
    return *most == 0 ? "hidden"
                      : std::string(kTimeKindNames[static_cast<size_t>(most - op.cycles.begin())]);
  }

  Json ops() const {
    std::vector<std::pair<uint64_t, uint32_t>> order;
    for (const auto& [id, op] : account_.ops) {
      order.emplace_back(op.total(), id);
    }
    std::ranges::sort(order, std::greater<>());
    Json json = Json::array();
    for (const auto& [total, id] : order) {
      const OpAccount& op = account_.ops.at(id);
      const double cycles = static_cast<double>(total) / cores_;
      const double flops = static_cast<double>(op.flops) / cores_;
      json.push_back({{"id", id},
                      {"name", name_of(id)},
                      {"source", source_of(id)},
                      {"class", kOpClassNames[static_cast<size_t>(class_of(id))]},
                      {"cycles", cycles},
                      {"busy_cycles", static_cast<double>(op.busy) / cores_},
                      {"commands", op.commands},
                      {"flops", flops},
                      {"hbm_read_bytes", static_cast<double>(op.hbm_read) / cores_},
                      {"hbm_written_bytes", static_cast<double>(op.hbm_written) / cores_},
                      {"link_bytes", static_cast<double>(op.link_bytes) / cores_},
                      {"mxu", cycles > 0 ? flops / (cycles * most_flops()) : 0.0},
                      {"bound_by", bound_by(op)},
                      {"kinds", by_kind(op.cycles, cores_)}});
    }
    return json;
  }

  // Operations that send to other cores, those first that the step waits for most.
  Json exchanges() const {
    struct Exchange {
      uint64_t exposed = 0;
      uint32_t id = 0;
      const OpAccount* op = nullptr;
    };
    std::vector<Exchange> order;
    for (const auto& [id, op] : account_.ops) {
      if (op.link_busy > 0) {
        order.push_back({op.link_busy - op.link_hidden - op.link_beside, id, &op});
      }
    }
    std::ranges::stable_sort(order, std::greater<>(),
                             [](const Exchange& e) { return e.exposed + e.op->link_waits; });
    Json json = Json::array();
    for (const Exchange& e : order) {
      json.push_back({{"id", e.id},
                      {"name", name_of(e.id)},
                      {"source", source_of(e.id)},
                      {"link_bytes", static_cast<double>(e.op->link_bytes) / cores_},
                      {"cycles", static_cast<double>(e.op->link_busy) / cores_},
                      {"hidden", static_cast<double>(e.op->link_hidden) / cores_},
                      {"beside_transfers", static_cast<double>(e.op->link_beside) / cores_},
                      {"exposed", static_cast<double>(e.exposed) / cores_}});
      if (timing_) {
        json.back()["waits"] = static_cast<double>(e.op->link_waits) / cores_;
      }
    }
    return json;
  }

  // Between HBM and the host. Null: the step has none.
  Json host_transfers() const {
    HostAccount all;
    for (const CoreAccount& core : account_.cores) {
      all.to_host_bytes += core.host.to_host_bytes;
      all.from_host_bytes += core.host.from_host_bytes;
      all.busy += core.host.busy;
      all.hidden += core.host.hidden;
      all.beside += core.host.beside;
    }
    if (all.busy == 0) {
      return nullptr;
    }
    const auto average = [&](uint64_t sum) { return static_cast<double>(sum) / cores_; };
    return {{"to_host_bytes", average(all.to_host_bytes)},
            {"from_host_bytes", average(all.from_host_bytes)},
            {"cycles", average(all.busy)},
            {"hidden", average(all.hidden)},
            {"beside_transfers", average(all.beside)},
            {"exposed", average(all.busy - all.hidden - all.beside)}};
  }

  // The most of each stretch, so that no peak is lost.
  Json curve(const std::vector<spec::LiveBytes>& series) const {
    Json json = Json::array();
    const uint64_t stretch = account_.cycles / kMostPoints + 1;
    uint64_t last = UINT64_MAX, most = 0, now = 0;
    const auto put = [&] {
      if (last != UINT64_MAX) {
        json.push_back({last * stretch, most});
      }
    };
    for (const spec::LiveBytes& point : series) {
      const uint64_t at = (point.cycle - std::min(point.cycle, record_.begin())) / stretch;
      if (at != last) {
        put();
        last = at;
        most = now;
      }
      now = point.bytes;
      most = std::max(most, now);
    }
    put();
    return json;
  }

  Json memory() const {
    return {{"core", record_.cores.front().core},
            {"vmem_bytes", board_.core.vmem_kib << 10},
            {"vmem", curve(record_.vmem)},
            {"hbm_bytes", board_.hbm.gib_per_core << 30},
            {"hbm", curve(record_.hbm)},
            {"held",
             {{"arguments", record_.argument_bytes},
              {"results", record_.result_bytes},
              {"constants", record_.constant_bytes},
              {"scratch", record_.scratch_bytes}}},
            {"peak", peak()}};
  }

  // Temporaries in HBM at the time when they have most bytes, those of a type and source line
  // together: equal layers.
  Json peak() const {
    struct Arrays {
      uint64_t count = 0, bytes = 0;
    };
    std::map<std::array<std::string, 3>, Arrays> groups;
    uint64_t bytes = 0;
    for (const spec::RecordedArray& array : record_.peak) {
      Arrays& group = groups[{array.type, name_of(array.op), source_of(array.op)}];
      ++group.count;
      group.bytes += array.bytes;
      bytes += array.bytes;
    }
    std::vector<std::pair<std::array<std::string, 3>, Arrays>> order(groups.begin(), groups.end());
    std::ranges::stable_sort(order, std::greater<>(),
                             [](const auto& group) { return group.second.bytes; });
    Json arrays = Json::array();
    for (const auto& [key, group] : order) {
      arrays.push_back({{"type", key[0]},
                        {"count", group.count},
                        {"bytes", group.bytes},
                        {"name", key[1]},
                        {"source", key[2]}});
    }
    return {{"bytes", bytes},
            {"name", name_of(record_.peak_op)},
            {"source", source_of(record_.peak_op)},
            {"arrays", std::move(arrays)}};
  }

  // Neighbours of one kind and operation are one piece; of many the longest are kept.
  Json path() const {
    std::vector<PathPiece> merged;
    KindCycles kinds{};
    std::map<uint32_t, uint64_t> by_op;
    for (const PathPiece& piece : path_) {
      kinds[static_cast<size_t>(piece.kind)] += piece.end - piece.begin;
      by_op[piece.op] += piece.end - piece.begin;
      if (!merged.empty() && merged.back().core == piece.core && merged.back().op == piece.op &&
          merged.back().kind == piece.kind && merged.back().end == piece.begin) {
        merged.back().end = piece.end;
      } else {
        merged.push_back(piece);
      }
    }
    Json json = {{"by_kind", by_kind(kinds, 1)}, {"by_op", Json::array()}};
    std::vector<std::pair<uint64_t, uint32_t>> order;
    for (const auto& [op, cycles] : by_op) {
      order.emplace_back(cycles, op);
    }
    std::ranges::sort(order, std::greater<>());
    for (const auto& [cycles, op] : order) {
      json["by_op"].push_back(
          {{"name", name_of(op)}, {"source", source_of(op)}, {"cycles", cycles}});
    }
    json["all_pieces"] = merged.size();
    json["pieces"] = pieces(std::move(merged));
    return json;
  }

  Json pieces(std::vector<PathPiece> all) const {
    std::ranges::stable_sort(all, std::greater<>(),
                             [](const PathPiece& p) { return p.end - p.begin; });
    all.resize(std::min(all.size(), kMostPieces));
    std::ranges::sort(all, {}, &PathPiece::begin);
    Json json = Json::array();
    for (const PathPiece& piece : all) {
      json.push_back({{"core", record_.cores[piece.core].core},
                      {"begin", piece.begin - record_.begin()},
                      {"end", piece.end - record_.begin()},
                      {"kind", kTimeKindNames[static_cast<size_t>(piece.kind)]},
                      {"op", name_of(piece.op)},
                      {"source", source_of(piece.op)}});
    }
    return json;
  }

  const spec::StepRecord& record_;
  const spec::BoardParams board_;
  const unsigned threads_;
  StepAccount account_;
  std::optional<StepTiming> timing_{};
  std::vector<PathPiece> path_{};
  const double cores_;
};

}  // namespace

Json step_report(const spec::StepRecord& record, size_t changes, unsigned threads,
                 const ReportWatch& watch) {
  if (record.left_out != 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("the step has {} commands, a record at most {}; report a smaller "
                            "program, for example with fewer layers or smaller batches",
                            record.left_out, spec::kMostRecordedCommands));
  }
  return Report(record, threads).run(changes, watch);
}

std::string report_page(const Json& report) {
  std::string page(kPage);
  // In a script "</" could end it.
  std::string text = report.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (size_t at = text.find("</"); at != std::string::npos; at = text.find("</", at + 3)) {
    text.replace(at, 2, "<\\/");
  }
  return page.replace(page.find(kPlace), kPlace.size(), text);
}

}  // namespace tpu::driver
