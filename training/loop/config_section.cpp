// Every key is known or refused.
#include "loop/config_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "check/refuse.hpp"

namespace tpu::training {

using driver::refuse;

std::string place_of(const toml::node& node, const std::string& file) {
  const toml::source_path_ptr& path = node.source().path;
  return path && *path != file ? *path : fmt::format("{}:{}", file, node.source().begin.line);
}

Section::Section(const toml::table& table, std::string name, const std::string& file)
    : section_(std::move(name)), file_(file), table_(&table) {}

Section Section::of(const toml::table& root, const std::string& name, const std::string& file) {
  const toml::node* node = root.get(name);
  if (node == nullptr) {
    refuse(fmt::format("{}: section [{}] is missing", file, name));
  }
  if (node->as_table() == nullptr) {
    refuse(fmt::format("{}: '{}' must be a section", place_of(*node, file), name));
  }
  return {*node->as_table(), name, file};
}

std::optional<std::string> Section::text(std::string_view key, bool required) {
  const toml::node* node = find(key, required);
  if (node == nullptr) {
    return std::nullopt;
  }
  const auto value = node->value_exact<std::string>();
  if (!value || value->empty()) {
    refuse(fmt::format("{}: {}.{} must be a text", place_of(*node, file_), section_, key));
  }
  return value;
}

int64_t Section::number(std::string_view key, bool required, Range<int64_t> range,
                        int64_t fallback) {
  const toml::node* node = find(key, required);
  if (node == nullptr) {
    return fallback;
  }
  const auto value = node->value_exact<int64_t>();
  if (!value || *value < range.low) {
    refuse(fmt::format("{}: {}.{} must be an integer of at least {}", place_of(*node, file_),
                       section_, key, range.low));
  }
  if (*value > range.high) {
    refuse(fmt::format("{}: {}.{} must be at most {}", place_of(*node, file_), section_, key,
                       range.high));
  }
  return *value;
}

double Section::real(std::string_view key, bool required, Range<double> range, double fallback) {
  const toml::node* node = find(key, required);
  if (node == nullptr) {
    return fallback;
  }
  const auto value = node->is_number() ? node->value<double>() : std::nullopt;
  if (!value || !std::isfinite(*value) || *value < range.low || *value > range.high) {
    refuse(range.high < std::numeric_limits<double>::max()
               ? fmt::format("{}: {}.{} must be a number in {} .. {}", place_of(*node, file_),
                             section_, key, range.low, range.high)
               : fmt::format("{}: {}.{} must be a number of at least {}", place_of(*node, file_),
                             section_, key, range.low));
  }
  return *value;
}

bool Section::flag(std::string_view key, bool fallback) {
  const toml::node* node = find(key, false);
  if (node == nullptr) {
    return fallback;
  }
  const auto value = node->value_exact<bool>();
  if (!value) {
    refuse(fmt::format("{}: {}.{} must be true or false", place_of(*node, file_), section_, key));
  }
  return *value;
}

std::vector<std::string> Section::texts(std::string_view key, bool required) {
  const toml::node* node = find(key, required);
  std::vector<std::string> values;
  if (node == nullptr) {
    return values;
  }
  const toml::array* array = node->as_array();
  if (array == nullptr) {
    refuse(fmt::format("{}: {}.{} must be a list of texts", place_of(*node, file_), section_, key));
  }
  for (const toml::node& entry : *array) {
    const auto value = entry.value_exact<std::string>();
    if (!value) {
      refuse(
          fmt::format("{}: {}.{} must be a list of texts", place_of(entry, file_), section_, key));
    }
    values.push_back(*value);
  }
  return values;
}

std::vector<int64_t> Section::numbers(std::string_view key, Range<int64_t> range) {
  const toml::node* node = find(key, false);
  std::vector<int64_t> values;
  if (node == nullptr) {
    return values;
  }
  const auto refuse_list = [&](const toml::node& at) {
    refuse(fmt::format("{}: {}.{} must be a list of integers in {} .. {}", place_of(at, file_),
                       section_, key, range.low, range.high));
  };
  const toml::array* array = node->as_array();
  if (array == nullptr || array->empty()) {
    refuse_list(*node);
  }
  for (const toml::node& entry : *array) {
    const auto value = entry.value_exact<int64_t>();
    if (!value || *value < range.low || *value > range.high) {
      refuse_list(entry);
    }
    values.push_back(*value);
  }
  return values;
}

std::vector<Section> Section::tables(std::string_view key) {
  const toml::node* node = find(key, false);
  std::vector<Section> tables;
  if (node == nullptr) {
    return tables;
  }
  const toml::array* array = node->as_array();
  if (array == nullptr || array->empty() || !array->is_homogeneous(toml::node_type::table)) {
    refuse(fmt::format("{}: {}.{} must be written as [[{}.{}]]", place_of(*node, file_), section_,
                       key, section_, key));
  }
  for (const toml::node& entry : *array) {
    tables.emplace_back(*entry.as_table(), fmt::format("{}.{}", section_, key), file_);
  }
  return tables;
}

std::string Section::where(std::string_view key) const {
  const toml::node* node = table_->get(key);
  return node == nullptr ? file_ : place_of(*node, file_);
}

void Section::check_all() const {
  for (const auto& [key, node] : *table_) {
    if (std::find(known_.begin(), known_.end(), key.str()) == known_.end()) {
      refuse(fmt::format("{}: unknown key {}.{}; known: {}", place_of(node, file_), section_,
                         key.str(), fmt::join(known_, ", ")));
    }
  }
}

const toml::node* Section::find(std::string_view key, bool required) {
  known_.emplace_back(key);
  const toml::node* node = table_->get(key);
  if (node == nullptr && required) {
    refuse(fmt::format("{}: {}.{} is missing", file_, section_, key));
  }
  return node;
}

}  // namespace tpu::training
