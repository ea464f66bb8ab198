// Runs the passes over a program, a graph or kernels, with its verifier behind each. A list of
// passes is changed by their names: a position that does not exist is an error.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/error.hpp"
#include "pass/pass_log.hpp"

namespace tpu::compiler {

// What the manager does with a program of the type, by a specialization beside it:
//   static constexpr std::string_view kUnit   what size() counts
//   static constexpr std::string_view kPass   how errors call a pass
//   static int64_t size(const Program&)
//   static int64_t number(Program&)           numbers what is new; how many these are, -1: unknown
//   static void verify(const Program&)        throws Error
template <typename Program>
struct PassSubject;

template <typename Program>
class PassOf {
 public:
  // `work`: takes the program, or the program and a PassLog. `weight`: its usual share of the time
  // of a compilation, in percent.
  template <typename Work>
  PassOf(std::string name, Work work, double weight = 1) : name_(std::move(name)), weight_(weight) {
    if constexpr (std::is_invocable_v<Work&, Program&, PassLog&>) {
      run_ = std::move(work);
    } else {
      run_ = [work = std::move(work)](Program& program, PassLog&) mutable { work(program); };
    }
  }

  const std::string& name() const { return name_; }
  double weight() const { return weight_; }
  void run(Program& program, PassLog& log) const { run_(program, log); }

 private:
  std::string name_;
  double weight_;
  std::function<void(Program&, PassLog&)> run_;
};

// Passes in their order. Names are unique.
template <typename Program>
class PassList {
 public:
  PassList() = default;
  PassList(std::initializer_list<PassOf<Program>> passes) {
    for (const PassOf<Program>& pass : passes) {
      append(pass);
    }
  }

  void append(PassOf<Program> pass) { insert(passes_.end(), std::move(pass)); }
  // Both throw std::logic_error if there is no pass `name`.
  void insert_before(std::string_view name, PassOf<Program> pass) {
    insert(find(name), std::move(pass));
  }
  void insert_after(std::string_view name, PassOf<Program> pass) {
    insert(std::next(find(name)), std::move(pass));
  }
  // The passes in front of `name`.
  PassList before(std::string_view name) const {
    PassList out;
    out.passes_.assign(passes_.begin(), find(name));
    return out;
  }
  // Another pass of the same name in its place.
  void replace(PassOf<Program> pass) {
    const auto at = passes_.begin() + (find(pass.name()) - passes_.cbegin());
    *at = std::move(pass);
  }

  auto begin() const { return passes_.begin(); }
  auto end() const { return passes_.end(); }
  size_t size() const { return passes_.size(); }
  const PassOf<Program>& back() const { return passes_.back(); }

 private:
  using Position = typename std::vector<PassOf<Program>>::const_iterator;

  Position find(std::string_view name) const {
    const auto at = std::find_if(passes_.begin(), passes_.end(),
                                 [&](const PassOf<Program>& p) { return p.name() == name; });
    if (at == passes_.end()) {
      throw std::logic_error("internal: there is no pass '" + std::string(name) +
                             "' at which another is inserted");
    }
    return at;
  }
  void insert(Position at, PassOf<Program> pass) {
    if (std::any_of(passes_.begin(), passes_.end(),
                    [&](const PassOf<Program>& p) { return p.name() == pass.name(); })) {
      throw std::logic_error("internal: two passes are named '" + pass.name() + "'");
    }
    passes_.insert(at, std::move(pass));
  }

  std::vector<PassOf<Program>> passes_;
};

template <typename Program>
struct PassHooks {
  std::function<void(const PassOf<Program>& pass)> before;
  std::function<void(const std::string& pass, const Program& program)> after;
  PassReport* report = nullptr;
};

// Throws Error; an error of the verifier names the pass.
template <typename Program>
void run_pass_list(Program& program, const PassList<Program>& passes,
                   const PassHooks<Program>& hooks = {}) {
  using Subject = PassSubject<Program>;
  using Clock = std::chrono::steady_clock;
  for (const PassOf<Program>& pass : passes) {
    if (hooks.before) {
      hooks.before(pass);
    }
    PassLog log;
    const int64_t before = hooks.report == nullptr ? 0 : Subject::size(program);
    const Clock::time_point start = Clock::now();
    pass.run(program, log);
    const std::chrono::duration<double> taken = Clock::now() - start;
    const int64_t made = Subject::number(program);
    try {
      Subject::verify(program);
    } catch (const Error& e) {
      throw Error(
          "after the " + std::string(Subject::kPass) + " '" + pass.name() + "': " + e.message(),
          e.op(), e.loc());
    }
    if (hooks.report != nullptr) {
      PassStats& stats = hooks.report->of(pass.name(), Subject::kUnit);
      stats.add(taken.count(), before, Subject::size(program), made, log);
    }
    if (hooks.after) {
      hooks.after(pass.name(), program);
    }
  }
}

}  // namespace tpu::compiler
