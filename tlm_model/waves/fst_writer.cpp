// Reads records until the board ends or is gone.
#include "waves/fst_writer.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "file/file_lock.hpp"
#include "gtkwave/fstapi.h"

namespace tpu::model {
namespace {

// The library collects changes as they come and orders them by signal when a block is full; with
// blocks of its own size that is one cache miss a change.
constexpr uint32_t kBlockChanges = 1U << 14;

// The lowest `width` bits as the library takes them: a digit each, the highest first.
void write_bits(uint64_t value, uint32_t width, char* text) {
  static const auto bytes = [] {
    std::array<std::array<char, 8>, 256> table{};
    for (size_t byte = 0; byte < table.size(); ++byte) {
      for (size_t bit = 0; bit < 8; ++bit) {
        table[byte][7 - bit] = static_cast<char>('0' + (byte >> bit & 1));
      }
    }
    return table;
  }();
  uint32_t at = width;
  for (; at >= 8; value >>= 8) {
    at -= 8;
    std::memcpy(text + at, bytes[value & 0xFF].data(), 8);
  }
  for (; at > 0; value >>= 1) {
    text[--at] = static_cast<char>('0' + (value & 1));
  }
}

}  // namespace

int FstWriter::run() {
  fst_ = fstWriterCreate(options_.path.c_str(), 1);
  if (fst_ == nullptr) {
    return 1;
  }
  // The library has replaced the file that was locked before.
  std::optional<FileLock> lock;
  try {
    lock.emplace(options_.path);
  } catch (const std::runtime_error&) {
    return kWaveFileTaken;
  }
  if (::send(socket_, &kWaveAcknowledge, 1, MSG_NOSIGNAL) != 1) {
    return 1;
  }
  fstWriterSetTimescale(fst_, -12);
  fstWriterSetPackType(fst_, FST_WR_PT_LZ4);
  const bool complete = copy_records();
  if (!complete) {
    end(true);  // the board's process is gone; what came so far is kept
  }
  fstWriterClose(fst_);
  if (!readable()) {
    return 1;
  }
  span_.texts = texts_;
  if (options_.write_views && !options_.write_views(span_)) {
    return kWaveViewsFailed;
  }
  return complete && ::write(socket_, &kWaveAcknowledge, 1) == 1 ? 0 : 1;
}

// The socket, and behind its end what was not sent.
bool FstWriter::read_more() {
  begin_ = 0;
  end_ = 0;
  ssize_t got = 0;
  do {
    got = ::read(socket_, buffer_, sizeof(buffer_));
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    end_ = static_cast<size_t>(got);
    received_ += end_;
    return true;
  }
  if (std::exchange(tail_read_, true)) {
    return false;
  }
  const uint64_t size = tail_.size.load(std::memory_order_acquire);
  const uint64_t skip = received_ - tail_.begin.load(std::memory_order_acquire);
  if (size > WaveTail::kBytes || skip >= size) {
    return false;
  }
  end_ = size - skip;
  std::memcpy(buffer_, tail_.bytes + skip, end_);
  return true;
}

bool FstWriter::get(void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    if (begin_ == end_ && !read_more()) {
      return false;
    }
    const size_t part = std::min(size, end_ - begin_);
    std::memcpy(at, buffer_ + begin_, part);
    begin_ += part;
    at += part;
    size -= part;
  }
  return true;
}

bool FstWriter::copy_records() {
  WaveRecord record;
  while (get(&record, sizeof(record))) {
    if (record.kind == WaveRecord::Kind::kEnd) {
      end(record.signal != 0);
      return true;
    }
    if (!take(record)) {
      return false;
    }
  }
  return false;
}

bool FstWriter::take(const WaveRecord& record) {
  using Kind = WaveRecord::Kind;
  const auto follows = [&] {
    text_.resize(record.value);
    return get(text_.data(), text_.size());
  };
  switch (record.kind) {
    case Kind::kSet:
      queue(record.cycle, record.signal, record.value);
      return true;
    case Kind::kSetWords: {
      Words words(record.value / sizeof(uint32_t));
      if (!get(words.data(), record.value)) {
        return false;
      }
      queue(record.cycle, record.signal, keep_words(std::move(words)));
      return true;
    }
    case Kind::kReached:
      settle(record.cycle);
      return true;
    case Kind::kOpen:
      queue(record.cycle, kOpenMark, 0);
      return true;
    case Kind::kClose:
      queue(record.cycle, kCloseMark, 0);
      return true;
    case Kind::kUpscope:
      fstWriterSetUpscope(fst_);
      return true;
    default:
      break;
  }
  if (!follows()) {
    return false;
  }
  if (record.kind == Kind::kScope) {
    fstWriterSetScope(fst_, FST_ST_VCD_MODULE, text_.c_str(), nullptr);
  } else if (record.kind == Kind::kEnum) {
    add_enum(record);
  } else if (record.kind == Kind::kText) {
    texts_.push_back({text_, static_cast<WaveTone>(record.signal)});
  } else {
    add_signal(record);
  }
  return true;
}

void FstWriter::add_enum(const WaveRecord& record) {
  std::istringstream lines(text_);
  std::string name;
  std::getline(lines, name);
  std::vector<std::string> literals;
  std::vector<std::string> values;
  uint64_t value = 0;
  std::string literal;
  while (lines >> value >> literal) {
    literals.push_back(literal);
    std::string& bits = values.emplace_back();
    for (uint32_t bit = record.signal; bit-- > 0;) {
      bits += (value >> bit & 1) != 0 ? '1' : '0';
    }
  }
  std::vector<const char*> literal_texts;
  std::vector<const char*> value_texts;
  for (size_t i = 0; i < literals.size(); ++i) {
    literal_texts.push_back(literals[i].c_str());
    value_texts.push_back(values[i].c_str());
  }
  enums_.push_back(fstWriterCreateEnumTable(fst_, name.c_str(),
                                            static_cast<uint32_t>(literals.size()), record.signal,
                                            literal_texts.data(), value_texts.data()));
}

void FstWriter::add_signal(const WaveRecord& record) {
  if (record.cycle != 0) {
    fstWriterEmitEnumTableRef(fst_, enums_.at(record.cycle - 1));
  }
  Signal& signal = signals_.emplace_back();
  signal.width = record.signal;
  signal.handle =
      create(signal.width == 0 ? FST_VT_GEN_STRING : FST_VT_VCD_WIRE, signal.width, text_);
  if (signal.width == 0) {
    signal.number = create(FST_VT_VCD_WIRE, kWaveTextBits, text_ + "_number");
  }
  if (record.signal > 64) {
    signal.value = kNoWords;
    zero_.resize(std::max(zero_.size(), (size_t{record.signal} + 31) / 32));
  }
}

uint32_t FstWriter::create(uint32_t type, uint32_t width, const std::string& name) {
  return fstWriterCreateVar(fst_, static_cast<fstVarType>(type), FST_VD_IMPLICIT, width,
                            name.c_str(), 0);
}

void FstWriter::queue(uint64_t cycle, uint32_t signal, uint64_t value) {
  if (signal < signals_.size() || signal >= kCloseMark) {
    pending_.push_back({cycle, signal, value});
  }
}

uint64_t FstWriter::keep_words(Words words) {
  if (free_words_.empty()) {
    words_.push_back(std::move(words));
    return words_.size() - 1;
  }
  const uint64_t number = free_words_.back();
  free_words_.pop_back();
  words_[number] = std::move(words);
  return number;
}

void FstWriter::set_value(const Change& change) {
  Signal& signal = signals_[change.signal];
  if (signal.width > 64 && signal.value != kNoWords) {
    free_words_.push_back(signal.value);
  }
  signal.value = change.value;
}

// Everything before cycle `end` is there: in order of time, and at one cycle as it came.
void FstWriter::settle(uint64_t end) {
  if (!std::ranges::is_sorted(pending_, {}, &Change::cycle)) {
    std::ranges::stable_sort(pending_, {}, &Change::cycle);
  }
  const auto behind = std::ranges::lower_bound(pending_, end, {}, &Change::cycle);
  for (auto change = pending_.begin(); change != behind; ++change) {
    pass(*change);
  }
  pending_.erase(pending_.begin(), behind);
}

void FstWriter::pass(const Change& change) {
  if (change.signal == kOpenMark) {
    if (state_ == State::kBefore) {
      open_window(change.cycle);
      span_.trigger = picoseconds(change.cycle);
    }
  } else if (change.signal == kCloseMark) {
    if (state_ == State::kOpen) {
      write_cycle();
      emit_time(change.cycle);
      state_ = State::kAfter;
    }
  } else if (state_ == State::kOpen) {
    write(change);
  } else if (state_ == State::kBefore) {
    if (options_.keep_cycles == 0) {
      set_value(change);
      return;
    }
    kept_.push_back(change);
    while (kept_.front().cycle + options_.keep_cycles < change.cycle) {
      set_value(kept_.front());
      kept_.pop_front();
    }
  }
}

// What was held back, behind the values that the signals had at its begin.
void FstWriter::open_window(uint64_t cycle) {
  while (!kept_.empty() && kept_.front().cycle + options_.keep_cycles < cycle) {
    set_value(kept_.front());
    kept_.pop_front();
  }
  now_ = kept_.empty() ? cycle : std::min(cycle, kept_.front().cycle);
  span_.begin = picoseconds(now_);
  state_ = State::kOpen;
  for (uint32_t signal = 0; signal < signals_.size(); ++signal) {
    signals_[signal].touched = true;
    touched_.push_back(signal);
  }
  for (const Change& change : kept_) {
    write(change);
  }
  kept_.clear();
}

void FstWriter::write(const Change& change) {
  if (change.cycle > now_) {
    write_cycle();
    now_ = change.cycle;
  }
  Signal& signal = signals_[change.signal];
  set_value(change);
  if (!signal.touched) {
    signal.touched = true;
    touched_.push_back(change.signal);
  }
}

std::span<const uint32_t> FstWriter::words_of(const Signal& signal) const {
  const Words& words = signal.value == kNoWords ? zero_ : words_[signal.value];
  return std::span(words).first((size_t{signal.width} + 31) / 32);
}

bool FstWriter::changed(const Signal& signal) const {
  if (!signal.shown) {
    return true;
  }
  return signal.width > 64 ? !std::ranges::equal(words_of(signal), signal.written_words)
                           : signal.value != signal.written;
}

void FstWriter::emit(Signal& signal) {
  signal.shown = true;
  if (signal.width > 64) {
    const std::span<const uint32_t> words = words_of(signal);
    signal.written_words.assign(words.begin(), words.end());
    fstWriterEmitValueChangeVec32(fst_, signal.handle, signal.width, signal.written_words.data());
    return;
  }
  signal.written = signal.value;
  if (signal.width == 0) {
    const std::string& text = texts_.at(signal.value).text;
    fstWriterEmitVariableLengthValueChange(fst_, signal.handle, text.data(),
                                           static_cast<uint32_t>(text.size()));
    emit_bits(signal.number, kWaveTextBits, signal.value);
    return;
  }
  emit_bits(signal.handle, signal.width, signal.value);
}

void FstWriter::emit_bits(uint32_t handle, uint32_t width, uint64_t value) {
  char text[64];
  write_bits(value, width, text);
  fstWriterEmitValueChange(fst_, handle, text);
}

void FstWriter::emit_time(uint64_t cycle) {
  span_.end = picoseconds(cycle);
  fstWriterEmitTimeChange(fst_, span_.end);
}

// Each signal once for a cycle, with the value that it has at its end.
void FstWriter::write_cycle() {
  bool told = false;
  std::ranges::sort(touched_);
  for (const uint32_t index : touched_) {
    Signal& signal = signals_[index];
    signal.touched = false;
    if (!changed(signal)) {
      continue;
    }
    if (!std::exchange(told, true)) {
      emit_time(now_);
    }
    emit(signal);
    ++in_block_;
  }
  touched_.clear();
  if (in_block_ >= kBlockChanges) {
    in_block_ = 0;
    fstWriterFlushContext(fst_);  // with the next cycle
  }
}

void FstWriter::end(bool keep) {
  settle(UINT64_MAX);
  if (keep && state_ == State::kBefore && options_.keep_cycles != 0 && !kept_.empty()) {
    open_window(kept_.back().cycle);
  }
  write_cycle();
}

bool FstWriter::readable() const {
  void* reader = fstReaderOpen(options_.path.c_str());
  if (reader == nullptr) {
    return false;
  }
  fstReaderClose(reader);
  return true;
}

// A cycle lasts 10^6 / MHz picoseconds; only the whole time is rounded, so nothing drifts.
uint64_t FstWriter::picoseconds(uint64_t cycle) const {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(cycle) * 1'000'000U /
                               options_.clock_mhz);
}

}  // namespace tpu::model
