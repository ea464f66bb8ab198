#include "input/records/record_writer.hpp"

#include "input/records/record_format.hpp"

namespace tpu::input {

RecordWriter::RecordWriter(const std::string& path, Compression compression)
    : file_(path), packer_(compression) {}

void RecordWriter::add(std::span<const std::byte> record) {
  constexpr size_t kFull = size_t{1} << 20;
  append_record(framed_, record);
  if (framed_.size() >= kFull) {
    flush(false);
  }
}

void RecordWriter::flush(bool last) {
  file_.add(packer_.add(framed_, last));
  framed_.clear();
}

void RecordWriter::finish() {
  flush(true);
  file_.finish();
}

}  // namespace tpu::input
