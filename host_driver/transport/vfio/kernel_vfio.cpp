#include "transport/vfio/kernel_vfio.hpp"

#include <fmt/format.h>
#include <linux/vfio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "tpu/error.hpp"
#include "transport/vfio/protocol.hpp"

namespace tpu::driver::vfio {
namespace {

constexpr const char* kContainer = "/dev/vfio/vfio";

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

class KernelMachine final : public PciMachine {
 public:
  KernelMachine(const std::string& addresses, std::unique_ptr<KernelCalls> calls)
      : calls_(std::move(calls)) {
    try {
      open_all(addresses);
    } catch (...) {
      close_all();
      throw;
    }
  }
  KernelMachine(const KernelMachine&) = delete;
  KernelMachine& operator=(const KernelMachine&) = delete;
  ~KernelMachine() override { close_all(); }

  size_t functions() const override { return functions_.size(); }
  std::string name(size_t function) const override { return functions_.at(function).address; }
  int hangup(size_t /*function*/) const override { return -1; }

  void read(size_t function, uint32_t region, uint64_t offset, std::span<std::byte> to) override {
    const Function& one = functions_.at(function);
    if (calls_->read(one.file, to, one.regions.at(region) + offset) !=
        static_cast<ptrdiff_t>(to.size())) {
      fail(ErrorCode::kUnavailable, one.address, "a read");
    }
  }
  void write(size_t function, uint32_t region, uint64_t offset,
             std::span<const std::byte> from) override {
    const Function& one = functions_.at(function);
    if (calls_->write(one.file, from, one.regions.at(region) + offset) !=
        static_cast<ptrdiff_t>(from.size())) {
      fail(ErrorCode::kUnavailable, one.address, "a write");
    }
  }
  void write_words(size_t function, std::span<const RegisterWrite> writes) override {
    for (const RegisterWrite& each : writes) {
      write(function, static_cast<uint32_t>(each.bar), each.offset,
            std::as_bytes(std::span(&each.value, 1)));
    }
  }
  void reset(size_t function) override {
    need(functions_.at(function).file, VFIO_DEVICE_RESET, nullptr, name(function), "a reset");
  }
  void set_msi(size_t function, std::span<const int> events) override {
    std::vector<std::byte> request(sizeof(vfio_irq_set) + events.size_bytes());
    vfio_irq_set head{};
    head.argsz = static_cast<uint32_t>(request.size());
    head.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    head.index = VFIO_PCI_MSI_IRQ_INDEX;
    head.count = static_cast<uint32_t>(events.size());
    std::memcpy(request.data(), &head, sizeof head);
    std::memcpy(request.data() + sizeof head, events.data(), events.size_bytes());
    need(functions_.at(function).file, VFIO_DEVICE_SET_IRQS, request.data(), name(function),
         "MSI vectors");
  }
  void map(uint64_t iova, std::span<std::byte> memory, int /*file*/) override {
    vfio_iommu_type1_dma_map map{};
    map.argsz = sizeof map;
    map.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE;
    map.vaddr = reinterpret_cast<uint64_t>(memory.data());
    map.iova = iova;
    map.size = memory.size();
    if (calls_->control(container_, VFIO_IOMMU_MAP_DMA, &map) < 0) {
      throw Error(ErrorCode::kResourceExhausted,
                  fmt::format("the IOMMU does not map {} bytes of host memory at {:#x}: {}; this "
                              "process may lock too few bytes (ulimit -l; use a smaller "
                              "OpenOptions::staging_bytes), or the IOMMU has too few address bits "
                              "(48 are expected: -device intel-iommu,aw-bits=48)",
                              memory.size(), iova, std::strerror(errno)));
    }
  }
  void unmap(uint64_t iova, uint64_t bytes) noexcept override {
    vfio_iommu_type1_dma_unmap unmap{};
    unmap.argsz = sizeof unmap;
    unmap.iova = iova;
    unmap.size = bytes;
    calls_->control(container_, VFIO_IOMMU_UNMAP_DMA, &unmap);
  }

 private:
  struct Function {
    std::string address;
    int file = -1;
    std::map<uint32_t, uint64_t> regions;  // number -> offset in the file
  };

  [[noreturn]] static void fail(ErrorCode code, const std::string& address, const char* what) {
    throw Error(code, fmt::format("the PCI function {}: {} failed: {}", address, what,
                                  std::strerror(errno)));
  }
  void need(int file, unsigned long request, void* argument, const std::string& address,
            const char* what) {
    if (calls_->control(file, request, argument) < 0) {
      fail(ErrorCode::kFailedPrecondition, address, what);
    }
  }

  void open_all(const std::string& addresses) {
    const std::vector<std::string> names =
        addresses.empty() ? calls_->functions() : split(addresses);
    if (names.empty()) {
      throw Error(ErrorCode::kUnavailable,
                  "vfio-pci has no PCI function of the vendor 1ae0: bind them to it first "
                  "(docs/vfio.md), or name their addresses: vfio:0000:00:04.0,0000:00:05.0");
    }
    container_ = calls_->open(kContainer);
    if (container_ < 0) {
      throw Error(ErrorCode::kUnavailable, fmt::format("{} cannot be opened: {}; is the module "
                                                       "vfio-pci loaded?",
                                                       kContainer, std::strerror(errno)));
    }
    if (calls_->control(container_, VFIO_GET_API_VERSION, nullptr) != VFIO_API_VERSION ||
        calls_->control(container_, VFIO_CHECK_EXTENSION,
                        reinterpret_cast<void*>(VFIO_TYPE1v2_IOMMU)) <= 0) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "this kernel's VFIO has no type 1 IOMMU, version 2");
    }
    for (const std::string& address : names) {
      open_function(address);
    }
  }

  // The first group decides of what kind the IOMMU is.
  int open_group(const std::string& address) {
    const std::string link = calls_->link("/sys/bus/pci/devices/" + address + "/iommu_group");
    const std::string number = link.substr(link.find_last_of('/') + 1);
    if (const auto known = groups_.find(number); known != groups_.end()) {
      return known->second;
    }
    const int group = number.empty() ? -1 : calls_->open("/dev/vfio/" + number);
    if (group < 0) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("the PCI function {} {}: expected one that vfio-pci has, behind an "
                              "IOMMU, and a user that may open /dev/vfio (docs/vfio.md)",
                              address,
                              number.empty() ? "has no IOMMU group"
                                             : fmt::format("has group {}, which cannot be opened "
                                                           "({})",
                                                           number, std::strerror(errno))));
    }
    groups_.emplace(number, group);
    vfio_group_status status{};
    status.argsz = sizeof status;
    need(group, VFIO_GROUP_GET_STATUS, &status, address, "the state of its IOMMU group");
    if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("the PCI function {}: other functions of its IOMMU group {} have a "
                              "driver of the kernel: give them to vfio-pci too",
                              address, number));
    }
    need(group, VFIO_GROUP_SET_CONTAINER, &container_, address, "to join its IOMMU group");
    if (groups_.size() == 1) {
      need(container_, VFIO_SET_IOMMU, reinterpret_cast<void*>(VFIO_TYPE1v2_IOMMU), address,
           "to set its IOMMU");
    }
    return group;
  }

  void open_function(const std::string& address) {
    const int group = open_group(address);
    Function& one = functions_.emplace_back();
    one.address = address;
    std::string name = address;
    one.file = calls_->control(group, VFIO_GROUP_GET_DEVICE_FD, name.data());
    if (one.file < 0) {
      fail(ErrorCode::kUnavailable, address, "to open it");
    }
    for (const uint32_t region : {kBar0Region, kBar2Region, kConfigRegion}) {
      vfio_region_info info{};
      info.argsz = sizeof info;
      info.index = region;
      need(one.file, VFIO_DEVICE_GET_REGION_INFO, &info, address, "a region");
      one.regions[region] = info.offset;
    }
  }

  void close_all() {
    for (const Function& function : functions_) {
      if (function.file >= 0) {
        calls_->close(function.file);
      }
    }
    for (const auto& [number, group] : groups_) {
      calls_->close(group);
    }
    if (container_ >= 0) {
      calls_->close(container_);
    }
  }

  const std::unique_ptr<KernelCalls> calls_;
  int container_ = -1;
  std::map<std::string, int> groups_;
  std::vector<Function> functions_;
};

}  // namespace

std::unique_ptr<PciMachine> open_kernel_vfio(const std::string& addresses,
                                             std::unique_ptr<KernelCalls> calls) {
  return std::make_unique<KernelMachine>(addresses, std::move(calls));
}

}  // namespace tpu::driver::vfio
