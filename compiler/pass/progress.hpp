// How far a compilation is: stages with their usual shares of its time.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tpu::compiler {

class Progress {
 public:
  using Tell = std::function<void(const std::string& stage, double done)>;

  explicit Progress(Tell tell) : tell_(std::move(tell)) {}

  // One more stage, behind the others; its share is its part of all weights.
  void expect(std::string stage, double weight);
  // Those in front of the stage are done. Throws std::logic_error for an unknown stage.
  void begin(std::string_view stage);
  // Part of the present stage that is done, from 0 to 1.
  void within(double part) const;

 private:
  struct Stage {
    std::string name;
    double weight;
  };

  Tell tell_;
  std::vector<Stage> stages_;
  double all_ = 0;
  size_t now_ = 0;
  double behind_ = 0;  // weight of the stages in front of it
};

}  // namespace tpu::compiler
