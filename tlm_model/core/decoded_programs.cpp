// Programs by the pages and by the contents of their images.
#include "core/decoded_programs.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "file/crc32c.hpp"
#include "kernel/page_set.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::model {

ImagePages::ImagePages(const HbmIf& hbm, uint64_t address, uint64_t bytes)
    : offset_(address % PageSet::kPageBytes) {
  const uint64_t end = address + bytes;
  for (uint64_t at = address; at < end;) {
    const uint64_t next = std::min(end, (at / PageSet::kPageBytes + 1) * PageSet::kPageBytes);
    if (next - at == PageSet::kPageBytes) {
      versions_.push_back(hbm.version(at));
    } else {
      const size_t before = ends_.size();
      ends_.resize(before + (next - at));
      hbm.read(at, std::span(ends_).subspan(before));
    }
    at = next;
  }
}

std::shared_ptr<const Program> ProgramCache::find(const ImagePages& pages) const {
  const auto found = by_pages_.find(pages);
  return found != by_pages_.end() ? found->second.lock() : nullptr;
}

std::shared_ptr<const Program> ProgramCache::same(uint32_t hash,
                                                  std::span<const std::byte> image) const {
  tpu_program_image_header_t header;
  std::memcpy(&header, image.data(), sizeof header);
  const auto [first, last] = programs_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    std::shared_ptr<const Program> program = it->second.lock();
    if (program && program->entry() == header.entry_word && program->slots() == header.slots &&
        std::ranges::equal(program->code(), image.subspan(sizeof header))) {
      return program;
    }
  }
  return nullptr;
}

std::shared_ptr<const Program> ProgramCache::get(std::span<const std::byte> image,
                                                 ImagePages pages) {
  const auto expired = [](const auto& entry) { return entry.second.expired(); };
  std::erase_if(by_pages_, expired);
  const uint32_t hash = spec::crc32c(image);
  std::shared_ptr<const Program> program = same(hash, image);
  if (program == nullptr) {
    std::erase_if(programs_, expired);
    tpu_program_image_header_t header;
    std::memcpy(&header, image.data(), sizeof header);
    const std::span<const std::byte> code = image.subspan(sizeof header);
    program = std::make_shared<const Program>(std::vector<std::byte>(code.begin(), code.end()),
                                              header.entry_word, header.slots, params_);
    programs_.emplace(hash, program);
  }
  by_pages_[std::move(pages)] = program;
  return program;
}

}  // namespace tpu::model
