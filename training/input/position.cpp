// The text of a position: what a checkpoint keeps.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "input/batch_pipeline.hpp"
#include "tpu/error.hpp"

namespace tpu::input {

std::string Position::text() const {
  return nlohmann::ordered_json{{"next", next}, {"beyond", beyond}, {"made_with", made_with}}
      .dump();
}

Position Position::parse(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    return {json.at("next").get<uint64_t>(), json.at("beyond").get<std::vector<uint64_t>>(),
            json.at("made_with").get<std::string>()};
  } catch (const nlohmann::json::exception& error) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        fmt::format("position of the input: damaged: {}", error.what()));
  }
}

}  // namespace tpu::input
