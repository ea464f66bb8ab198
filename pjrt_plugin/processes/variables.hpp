// Numbers and lists in variables of the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tpu::pjrt {

using Variable = std::function<std::optional<std::string>(const char* name)>;

Variable variable_of_environment();

/// Nothing for a variable that is not set or empty.
std::optional<std::string> value_of(const Variable& variable, const char* name);

/// "a,b": a and b.
std::vector<std::string> parts_of(const std::string& text);

/// "2,2,1"; of 0 to 2^20. Throws driver::Error (InvalidArgument) that names the variable.
std::vector<int> numbers_of(const char* name, const std::string& text);
int number_of(const char* name, const std::string& text);

/// "2,2,1" is 4, of 1 to 2^20. Throws driver::Error (InvalidArgument).
int product_of(const char* name, const std::string& text);

}  // namespace tpu::pjrt
