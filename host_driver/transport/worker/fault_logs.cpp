#include "transport/worker/fault_logs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "file/whole_file.hpp"
#include "tpu/error.hpp"

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

FaultLogs::FaultLogs(const std::string& path, std::vector<std::string> parts)
    : path_(path), parts_(std::move(parts)), attached_(parts_.size()) {
  std::error_code failed;
  const auto kind = std::filesystem::status(path, failed).type();
  if (kind != std::filesystem::file_type::not_found &&
      kind != std::filesystem::file_type::regular) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("SimOptions::fault_log_path: expected a regular file, found {}: each "
                            "process of a pod writes a log beside it; \"-\" is standard error",
                            path));
  }
  try {
    lock_.emplace(path);
  } catch (const std::runtime_error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("SimOptions::fault_log_path: {}", error.what()));
  }
}

std::string FaultLogs::merge() {
  std::vector<std::string> parts;
  for (size_t rank = 0; rank < parts_.size(); ++rank) {
    if (attached_[rank] != 0) {
      parts.push_back(parts_[rank]);
    }
  }
  parts_.clear();
  std::string wrong;
  try {
    if (!parts.empty()) {
      write(parts);
    }
  } catch (const std::exception& error) {
    wrong = fmt::format("fault log: writing {} failed: {}", path_, error.what());
  }
  lock_.reset();
  return wrong;
}

// In its place: a file of another name would not be locked.
void FaultLogs::write(const std::vector<std::string>& parts) {
  std::vector<std::vector<std::byte>> texts;
  std::vector<OrderedLine> lines;
  texts.reserve(parts.size());
  for (const std::string& part : parts) {
    texts.push_back(spec::read_whole_file(part));
  }
  for (const std::vector<std::byte>& text : texts) {
    add_lines({reinterpret_cast<const char*>(text.data()), text.size()}, lines);
  }
  std::ranges::stable_sort(lines, {}, &OrderedLine::order);
  std::string all;
  for (const OrderedLine& line : lines) {
    all += line.text;
    all += line.text.ends_with('\n') ? "" : "\n";  // its process has ended within it
  }
  std::FILE* const file = lock_->open_stream();
  if (file == nullptr) {
    throw std::system_error(errno, std::generic_category());
  }
  const bool written = std::fwrite(all.data(), 1, all.size(), file) == all.size();
  if (const int error = errno; std::fclose(file) != 0 || !written) {
    throw std::system_error(written ? errno : error, std::generic_category());
  }
  for (const std::string& part : parts) {
    std::filesystem::remove(part);
  }
}

}  // namespace tpu::driver::worker
