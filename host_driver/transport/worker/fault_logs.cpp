#include "transport/worker/fault_logs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "file/output_file.hpp"
#include "file/whole_file.hpp"

namespace tpu::driver::worker {
namespace {

// "[81920] ..." comes by cycle; behind these lines come "fault 3 (line 4: ...", by number.
using LineOrder = std::pair<bool, uint64_t>;

std::optional<LineOrder> order_of(std::string_view line) {
  constexpr std::string_view kNumber = "fault ";
  const bool timed = line.starts_with('[');
  if (!timed && !line.starts_with(kNumber)) {
    return std::nullopt;
  }
  line.remove_prefix(timed ? 1 : kNumber.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  return error == std::errc() ? std::optional<LineOrder>({!timed, number}) : std::nullopt;
}

struct OrderedLine {
  LineOrder order;
  std::string_view text;
};

void add_lines(std::string_view text, std::vector<OrderedLine>& lines) {
  LineOrder last;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    last = order_of(line).value_or(last);
    lines.push_back({last, line});
    text.remove_prefix(end);
  }
}

}  // namespace

std::string merge_fault_logs(const std::vector<std::string>& parts, const std::string& path) {
  try {
    std::vector<std::vector<std::byte>> texts;
    std::vector<OrderedLine> lines;
    for (const std::string& part : parts) {
      if (std::filesystem::exists(part)) {
        texts.push_back(spec::read_whole_file(part));
      }
    }
    if (texts.empty()) {
      return {};  // no board was opened
    }
    for (const std::vector<std::byte>& text : texts) {
      add_lines({reinterpret_cast<const char*>(text.data()), text.size()}, lines);
    }
    std::ranges::stable_sort(lines, {}, &OrderedLine::order);
    spec::OutputFile file(path);
    for (const OrderedLine& line : lines) {
      file.add(std::as_bytes(std::span(line.text)));
      if (!line.text.ends_with('\n')) {  // its process has ended within it
        file.add(std::as_bytes(std::span("\n", 1)));
      }
    }
    file.finish();
    for (const std::string& part : parts) {
      std::filesystem::remove(part);
    }
  } catch (const std::exception& error) {
    return fmt::format("fault log: writing {} failed: {}", path, error.what());
  }
  return {};
}

}  // namespace tpu::driver::worker
