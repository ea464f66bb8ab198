// Host memory that a client has given to a chip: ranges of DMA addresses, behind which is a file
// that is mapped here, or nothing but the client's word that it answers for them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "socket/descriptor.hpp"
#include "transport/vfio/protocol.hpp"

namespace tpu::driver::vfio {

/// A whole file, mapped once for all ranges in it.
class MappedFile;

class DmaRanges {
 public:
  /// 1 GiB of single pages: what an IOMMU of a guest maps where its memory is in pieces.
  static constexpr size_t kMostRanges = 262144;
  /// What clients are told. QEMU rejects more, and has no limit for maps of an IOMMU.
  static constexpr size_t kToldRanges = 65535;
  static constexpr uint64_t kMostBytes = uint64_t{1} << 40;

  DmaRanges();
  ~DmaRanges();

  /// 0, or the errno of the reply. A descriptor that is not valid: without a file.
  int map(const DmaMap& map, base::Descriptor file);
  /// Takes away all ranges inside `size` bytes (1 or more) at `address`, perhaps none, as Linux
  /// does: an IOMMU that QEMU models names whole parts of the address space. 0 and the bytes that
  /// were mapped, or EINVAL and no change: a range would be cut, or the end is behind 2^64.
  std::pair<int, uint64_t> unmap(uint64_t address, uint64_t size);
  void clear();

  /// A part of what was asked for, in one range.
  struct Piece {
    uint64_t address = 0;
    uint64_t bytes = 0;
    std::byte* data = nullptr;  ///< null: the client has it
  };
  /// Calls `take` for each piece in turn. False: a part is in no range or not permitted; then some
  /// pieces may have been taken.
  bool pieces(uint64_t address, uint64_t bytes, bool write,
              const std::function<void(const Piece&)>& take) const;
  /// The bytes, where they lie together in a file that is mapped; else empty.
  std::span<std::byte> together(uint64_t address, uint64_t bytes, bool write) const;

  size_t count() const { return ranges_.size(); }

 private:
  struct Range {
    uint64_t size = 0;
    uint32_t flags = 0;
    uint64_t offset = 0;
    std::shared_ptr<MappedFile> file;
  };
  using FileKey = std::pair<uint64_t, uint64_t>;  // device, inode

  const std::pair<const uint64_t, Range>* range_at(uint64_t address) const;
  int open(Range& range, base::Descriptor file);

  std::map<uint64_t, Range> ranges_;  // by address; none overlaps another
  uint64_t bytes_ = 0;
  std::map<FileKey, std::weak_ptr<MappedFile>> files_;
};

}  // namespace tpu::driver::vfio
