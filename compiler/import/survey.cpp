// What a refused program holds that is not supported, all of it at once: a walk over the raw ops
// after the first error. An op whose operands have such a type already says nothing new.
#include <algorithm>
#include <set>

#include "import/import_parts.hpp"
#include "ir/error_kinds.hpp"

namespace tpu::compiler::frontend {
namespace {

constexpr size_t kMostListed = 40;

// A line each.
std::string listed(const std::vector<Error>& errors) {
  std::string all = std::to_string(errors.size()) + " things in this program are not supported:";
  for (size_t i = 0; i < errors.size() && i < kMostListed; ++i) {
    all += "\n  " + std::string(errors[i].what());
  }
  if (errors.size() > kMostListed) {
    all += "\n  and " + std::to_string(errors.size() - kMostListed) + " more";
  }
  return all;
}

}  // namespace

struct Survey::Findings {
  std::set<uint32_t> refused;       // values of types that are not supported
  std::vector<Error> errors;        // none twice
  std::set<std::string> texts;      // of them
  std::set<std::string> passed_on;  // errors of types that come from elsewhere
  LocRef caller;                    // of the function at hand

  Error placed(const Error& e) const { return {e.message(), e.op(), nested_loc(caller, e.loc())}; }
  void add(const Error& e) {
    Error here = placed(e);
    if (texts.insert(here.what()).second) {
      errors.push_back(std::move(here));
    }
  }
};

void Survey::fail(const Error& first) {
  Findings survey;
  outer_loc_ = nullptr;
  const RawOp& main = *functions_.at("main");
  in_function(main, survey);
  for (const auto& [function_name, op] : functions_) {
    if (op != &main) {
      survey.caller = calls_.caller_loc(*op);
      in_function(*op, survey);
    }
  }
  survey.caller = nullptr;
  if (survey.errors.empty() || survey.passed_on.count(first.what()) == 0) {
    survey.add(first);
  }
  if (survey.errors.size() == 1) {
    throw Unsupported(survey.errors[0]);
  }
  throw Unsupported(listed(survey.errors));
}

void Survey::in_function(const RawOp& op, Findings& survey) {
  const bool is_main = &op == functions_.at("main");
  for (const RawRegion& body : op.regions) {
    for (size_t i = 0; is_main && i < body.args.size(); ++i) {
      try {
        interface_.arg_type(open(op), body, i);
      } catch (const Error& e) {
        survey.add(e);
      }
    }
    in_region(body, open(op), survey);
  }
}

void Survey::in_region(const RawRegion& region, const OpReader& owner, Findings& survey) {
  const auto is_refused = [&](const OpReader& reader, uint32_t type) {
    try {
      reader.type(type);
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  for (const auto& arg : region.args) {
    if (is_refused(owner, arg.type)) {
      survey.refused.insert(arg.value);
    }
  }
  for (const RawOp& op : region.ops) {
    const OpReader reader = open(op);
    for (const RawRegion& inner : op.regions) {
      const LocRef saved = outer_loc_;
      outer_loc_ = op.dialect == bytecode::Dialect::kSdy ? reader.loc() : outer_loc_;
      in_region(inner, reader, survey);
      outer_loc_ = saved;
    }
    // What comes from operands, regions and called functions is said there.
    bool passed_on = !op.regions.empty() || referred_function(op) != nullptr;
    for (const uint32_t value : op.operands) {
      passed_on = passed_on || survey.refused.count(value) != 0;
    }
    try {
      check_known(reader, raw_, options_);
    } catch (const Error& e) {
      survey.add(e);
      passed_on = true;
    }
    try {
      result_types(reader);
    } catch (const Error& e) {
      if (passed_on) {
        survey.passed_on.insert(survey.placed(e).what());
      } else {
        survey.add(e);
      }
    }
    for (size_t i = 0; i < op.results.size() && i < op.result_types.size(); ++i) {
      if (is_refused(reader, op.result_types[i])) {
        survey.refused.insert(op.results[i]);
      }
    }
  }
}

}  // namespace tpu::compiler::frontend
