// Decoded programs, which the cores of a pod share.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/program.hpp"
#include "kernel/hbm_if.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::model {

// Where an image is in the HBM of a core: equal ones have equal contents.
class ImagePages {
 public:
  // The range must lie inside of the HBM.
  ImagePages(const HbmIf& hbm, uint64_t address, uint64_t bytes);
  auto operator<=>(const ImagePages&) const = default;

 private:
  uint64_t offset_ = 0;             // in its first page
  std::vector<uint64_t> versions_;  // of the pages that are its own (HbmIf::version)
  std::vector<uint8_t> ends_;       // its bytes in pages that others have parts of
};

// Decoded programs of a board by content: the cores of a gang load the same image. Most of them
// share its pages, so that they need not even read it.
class ProgramCache {
 public:
  explicit ProgramCache(const spec::BoardParams& params) : params_(params) {}
  // Null: no program was loaded from such pages.
  std::shared_ptr<const Program> find(const ImagePages& pages) const;
  // `image` = header and code, which are in `pages`; its header has been checked.
  std::shared_ptr<const Program> get(std::span<const std::byte> image, ImagePages pages);

 private:
  std::shared_ptr<const Program> same(uint32_t hash, std::span<const std::byte> image) const;

  const spec::BoardParams params_;
  std::unordered_multimap<uint32_t, std::weak_ptr<const Program>> programs_;
  std::map<ImagePages, std::weak_ptr<const Program>> by_pages_;
};

}  // namespace tpu::model
