// The text of a position: what a checkpoint keeps.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "format/json_input.hpp"
#include "input/batch_pipeline.hpp"
#include "tpu/error.hpp"

namespace tpu::input {

using driver::JsonInput;

std::string Position::text() const {
  return nlohmann::ordered_json{{"next", next}, {"beyond", beyond}, {"made_with", made_with}}
      .dump();
}

Position Position::parse(const std::string& text) {
  try {
    const nlohmann::ordered_json whole = JsonInput::parse(text);
    const JsonInput json(whole);
    std::vector<uint64_t> beyond;
    for (const JsonInput& batch : json.at("beyond").elements()) {
      beyond.push_back(batch.as<uint64_t>());
    }
    return {json.at("next").as<uint64_t>(), std::move(beyond),
            json.at("made_with").as<std::string>()};
  } catch (const driver::JsonInputError& error) {
    throw driver::Error(
        driver::ErrorCode::kInvalidArgument,
        fmt::format("the saved position of the input is damaged: {}", error.what()));
  }
}

}  // namespace tpu::input
