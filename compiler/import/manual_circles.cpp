// See manual_circles.hpp.
//
//   %1 = custom_call @SPMDFullToShardShape(%0)    as before, and behind %2
//   %2 = negate %1
//   %3 = custom_call @SPMDShardToFullShape(%2)    %8 = reshape %2 : [1, ..]
//   %4 = abs %3                                   %9 = custom_call @SPMDShardToFullShape(%8)
//   %5 = custom_call @SPMDFullToShardShape(%4)    %10 = custom_call @Sharding(%9) : [n, ..]
//   %6 = add %2, %5                               %11 = custom_call @SPMDFullToShardShape(%10)
//   %7 = custom_call @SPMDShardToFullShape(%6)    %12 = reshape %11, which %6 reads for %2
//
// The level of an op says how often the program of all devices was left and entered for it. Each
// level of a part becomes a part, since none of its ops reads a value of another level.
#include "import/manual_circles.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "import/gspmd.hpp"
#include "import/manual_finder.hpp"

namespace tpu::compiler::frontend {
namespace {

using bytecode::RawOp;
using bytecode::RawRegion;

class CircleCutter {
 public:
  CircleCutter(RawRegion& region, ManualProgram& program)
      : ops_(region.ops),
        program_(program),
        found_(program.tables, region, program.core_ops),
        parts_(found_.parts()) {}

  void run() {
    find_circles();
    if (circles_.empty()) {
      return;
    }
    find_levels();
    for (const size_t part : circles_) {
      if (is_fully_manual(parts_[part])) {
        cut(parts_[part]);
      }
    }
    insert();
  }

 private:
  // A part is one node, any other op is one too: those that no order has are in a circle or behind
  // one.
  void find_circles() {
    std::vector<size_t> node(ops_.size());
    for (size_t at = 0; at < ops_.size(); ++at) {
      node[at] = parts_.size() + at;
    }
    for (size_t p = 0; p < parts_.size(); ++p) {
      std::ranges::for_each(parts_[p].ops, [&](size_t at) { node[at] = p; });
    }
    std::vector<std::set<size_t>> readers(parts_.size() + ops_.size());
    std::vector<size_t> missing(readers.size(), 0);
    for (size_t at = 0; at < ops_.size(); ++at) {
      each_use(ops_[at], [&](uint32_t value) {
        const size_t from = found_.maker(value);
        if (from != kNowhere && node[from] != node[at] &&
            readers[node[from]].insert(node[at]).second) {
          ++missing[node[at]];
        }
      });
    }
    std::vector<size_t> ready;
    for (size_t n = 0; n < readers.size(); ++n) {
      if (missing[n] == 0) {
        ready.push_back(n);
      }
    }
    std::vector<bool> placed(readers.size());
    while (!ready.empty()) {
      const size_t n = ready.back();
      ready.pop_back();
      placed[n] = true;
      for (const size_t reader : readers[n]) {
        if (--missing[reader] == 0) {
          ready.push_back(reader);
        }
      }
    }
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (!placed[p]) {
        circles_.push_back(p);
      }
    }
  }

  void find_levels() {
    std::set<size_t> exits;
    for (const size_t part : circles_) {
      exits.insert(parts_[part].exits.begin(), parts_[part].exits.end());
    }
    levels_.resize(ops_.size());
    for (size_t at = 0; at < ops_.size(); ++at) {
      each_use(ops_[at], [&](uint32_t value) {
        if (const size_t from = found_.maker(value); from != kNowhere) {
          levels_[at] = std::max(levels_[at], levels_[from] + (exits.contains(from) ? 1 : 0));
        }
      });
    }
  }

  bool is_fully_manual(const ManualPart& part) const {
    return std::ranges::all_of(part.entries, [&](size_t at) {
      return program_.tables.text(program_.tables.entry(ops_[at].dictionary, "mhlo.sharding")) ==
             "{manual}";
    });
  }

  void cut(const ManualPart& part) {
    std::set<size_t> own(part.ops.begin(), part.ops.end());
    own.insert(part.entries.begin(), part.entries.end());
    for (const size_t at : part.ops) {
      each_use(ops_[at], [&](uint32_t& value) {
        const size_t from = found_.maker(value);
        if (from != kNowhere && own.contains(from) && levels_[from] < levels_[at] &&
            !program_.is_token(value)) {
          value = carried(value, from, levels_[at]);
        }
      });
    }
  }

  // The value for the ops of a later level: an entry again, anything else by way of a stack.
  uint32_t carried(uint32_t value, size_t from, size_t level) {
    const auto [known, added] = carried_.emplace(std::pair(value, level), 0);
    if (!added) {
      return known->second;
    }
    std::vector<RawOp>& behind = added_[from];
    const RawOp& maker = ops_[from];
    if (custom_call_target(program_.tables, maker) == kGspmdEnter) {
      RawOp& again = behind.emplace_back(maker);
      again.results = {program_.new_value(maker.result_types.at(0))};
      known->second = again.results[0];
      return known->second;
    }
    known->second = through_stack(value, maker.loc, behind);
    return known->second;
  }

  uint32_t through_stack(uint32_t value, uint32_t loc, std::vector<RawOp>& behind) {
    const uint32_t type = program_.type_of(value);
    std::vector<int64_t> one = program_.module.types[type].shape;
    const uint32_t elem = program_.module.types[type].types.at(0);
    one.insert(one.begin(), 1);
    std::vector<int64_t> all = one;
    all[0] = program_.devices;
    std::string tiles = "{devices=[" + std::to_string(program_.devices);
    for (size_t d = 1; d < one.size(); ++d) {
      tiles += ",1";
    }
    tiles += "]<=[" + std::to_string(program_.devices) + "]}";
    const Said by_device = {"mhlo.sharding", program_.build.kept_text(std::move(tiles))};
    const Said manual = {"mhlo.sharding", program_.build.text("{manual}")};
    const uint32_t one_type = program_.build.tensor_type(elem, one);
    const uint32_t all_type = program_.build.tensor_type(elem, all);
    const auto add = [&](RawOp op) {
      behind.push_back(std::move(op));
      return behind.back().results[0];
    };
    const uint32_t row = add(program_.reshape(loc, value, one_type));
    const uint32_t stack = add(program_.custom_call(loc, kGspmdLeave, row, by_device, all_type));
    const uint32_t again =
        add(program_.custom_call(loc, kGspmdConstraint, stack, by_device, all_type));
    const uint32_t back = add(program_.custom_call(loc, kGspmdEnter, again, manual, one_type));
    return add(program_.reshape(loc, back, type));
  }

  void insert() {
    std::vector<RawOp> all;
    for (size_t at = 0; at < ops_.size(); ++at) {
      all.push_back(std::move(ops_[at]));
      if (const auto behind = added_.find(at); behind != added_.end()) {
        std::ranges::move(behind->second, std::back_inserter(all));
      }
    }
    ops_ = std::move(all);
  }

  std::vector<RawOp>& ops_;
  ManualProgram& program_;
  const ManualFinder found_;
  const std::vector<ManualPart> parts_;
  std::vector<size_t> circles_;                              // of parts_
  std::vector<size_t> levels_;                               // by place
  std::map<std::pair<uint32_t, size_t>, uint32_t> carried_;  // by value and level
  std::map<size_t, std::vector<RawOp>> added_;               // behind a place
};

}  // namespace

void cut_manual_circles(RawRegion& region, ManualProgram& program) {
  CircleCutter(region, program).run();
}

}  // namespace tpu::compiler::frontend
