// The driver over Linux's VFIO, with a kernel of the test's own: its files, requests and regions,
// with the null board behind them.
#include "transport/vfio/kernel_vfio.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/vfio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "board/board_loader.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"
#include "transport/vfio/chip_regions.hpp"
#include "transport/vfio/interrupt_vectors.hpp"
#include "transport/vfio/vfio_transport.hpp"

namespace tpu::driver::vfio {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kContainer = 1000;
constexpr int kGroups = 2000;     // and the number of one
constexpr int kFunctions = 3000;  // and its chip
constexpr int kRegionBits = 40;   // offsets in the file of a function

/// What the test looks at, and changes; lives longer than the kernel.
struct KernelState {
  std::map<uint64_t, std::span<std::byte>> mapped;  // by iova
  size_t maps = 0;
  std::set<int> open;
  bool viable = true;
  bool maps_fail = false;
  bool has_container = true;
};

class FakeKernel final : public KernelCalls, public HostMemory {
 public:
  explicit FakeKernel(KernelState& state) : state_(state) {
    TransportRequest request;
    request.params = spec::load_board("v3_8");
    transport_ = make_null_transport(request, *this);
    board_.transport = transport_.get();
    for (int chip = 0; chip < 4; ++chip) {
      chips_.push_back(std::make_unique<Chip>(board_, chip));
    }
  }

  // KernelCalls. The chips are behind their functions in the opposite order.
  std::vector<std::string> functions() override {
    return {"0000:00:04.0", "0000:00:05.0", "0000:00:06.0", "0000:00:07.0"};
  }
  std::string link(const std::string& path) override {
    const size_t at = path.find("0000:00:0");
    return at == std::string::npos ? "" : "../../../kernel/iommu_groups/" + path.substr(at + 9, 1);
  }
  int open(const std::string& path) override {
    errno = ENOENT;
    if (path == "/dev/vfio/vfio") {
      return state_.has_container ? opened(kContainer) : -1;
    }
    return opened(kGroups + std::stoi(path.substr(std::strlen("/dev/vfio/"))));
  }
  void close(int file) override { state_.open.erase(file); }
  ptrdiff_t read(int file, std::span<std::byte> to, uint64_t at) override {
    const auto access = access_of(to.size(), at);
    const auto reply = chip(file).regions.read(bytes_of(access));
    std::copy(reply.begin() + sizeof access, reply.end(), to.begin());
    pass_time();
    return static_cast<ptrdiff_t>(to.size());
  }
  ptrdiff_t write(int file, std::span<const std::byte> from, uint64_t at) override {
    const auto head = access_of(from.size(), at);
    std::vector<std::byte> payload(bytes_of(head).begin(), bytes_of(head).end());
    payload.insert(payload.end(), from.begin(), from.end());
    chip(file).regions.write(payload);
    pass_time();
    return static_cast<ptrdiff_t>(from.size());
  }
  int control(int file, unsigned long request, void* argument) override {
    EXPECT_TRUE(state_.open.contains(file)) << file;
    return file >= kFunctions ? of_function(file, request, argument)
           : file >= kGroups  ? of_group(file, request, argument)
                              : of_container(request, argument);
  }

  // HostMemory, of the null board.
  std::span<std::byte> span(uint64_t iova, uint64_t bytes, bool /*write*/) override {
    for (const auto& [base, memory] : state_.mapped) {
      if (iova >= base && iova - base <= memory.size() && bytes <= memory.size() - (iova - base)) {
        return memory.subspan(iova - base, bytes);
      }
    }
    return {};
  }

 private:
  struct Chip {
    Chip(FunctionBoard& board, int chip) : regions(board, chip, PciId()) {}
    ChipRegions regions;
    InterruptVectors vectors;
  };

  int opened(int file) { return *state_.open.insert(file).first; }
  Chip& chip(int file) { return *chips_.at(static_cast<size_t>(file - kFunctions)); }
  static RegionAccess access_of(size_t bytes, uint64_t at) {
    return {at & ((uint64_t{1} << kRegionBits) - 1), static_cast<uint32_t>(at >> kRegionBits),
            static_cast<uint32_t>(bytes)};
  }

  void pass_time() {
    for (board_.quiet = false; !board_.quiet;) {
      const RunOutcome outcome = transport_->run();
      board_.quiet = outcome.quiescent;
      for (size_t i = 0; i < chips_.size(); ++i) {
        chips_[i]->vectors.raise(outcome.msi.at(i));
      }
    }
  }

  int of_container(unsigned long request, void* argument) {
    switch (request) {
      case VFIO_GET_API_VERSION:
        return VFIO_API_VERSION;
      case VFIO_CHECK_EXTENSION:
        return reinterpret_cast<uintptr_t>(argument) == VFIO_TYPE1v2_IOMMU ? 1 : 0;
      case VFIO_SET_IOMMU:
        EXPECT_EQ(reinterpret_cast<uintptr_t>(argument), unsigned{VFIO_TYPE1v2_IOMMU});
        return 0;
      case VFIO_IOMMU_MAP_DMA: {
        const auto& map = *static_cast<const vfio_iommu_type1_dma_map*>(argument);
        EXPECT_EQ(map.argsz, sizeof map);
        EXPECT_EQ((map.vaddr | map.iova | map.size) % kPageBytes, 0u);
        errno = ENOMEM;
        if (state_.maps_fail) {
          return -1;
        }
        state_.mapped[map.iova] = {
            reinterpret_cast<std::byte*>(map.vaddr),  // NOLINT: an ioctl has addresses as numbers
            map.size};
        ++state_.maps;
        return 0;
      }
      case VFIO_IOMMU_UNMAP_DMA:
        EXPECT_EQ(
            state_.mapped.erase(static_cast<const vfio_iommu_type1_dma_unmap*>(argument)->iova),
            1u);
        return 0;
      default:
        return unknown(request);
    }
  }
  int of_group(int file, unsigned long request, void* argument) {
    switch (request) {
      case VFIO_GROUP_GET_STATUS:
        static_cast<vfio_group_status*>(argument)->flags =
            state_.viable ? VFIO_GROUP_FLAGS_VIABLE : 0;
        return 0;
      case VFIO_GROUP_SET_CONTAINER:
        EXPECT_EQ(*static_cast<const int*>(argument), kContainer);
        return 0;
      case VFIO_GROUP_GET_DEVICE_FD:
        EXPECT_THAT(static_cast<const char*>(argument), HasSubstr("0000:00:0"));
        return opened(kFunctions + kGroups + 7 - file);
      default:
        return unknown(request);
    }
  }
  int of_function(int file, unsigned long request, void* argument) {
    switch (request) {
      case VFIO_DEVICE_GET_REGION_INFO: {
        auto& info = *static_cast<vfio_region_info*>(argument);
        EXPECT_EQ(info.argsz, sizeof info);
        info.offset = uint64_t{info.index} << kRegionBits;
        return 0;
      }
      case VFIO_DEVICE_RESET:
        chip(file).regions.reset();
        return 0;
      case VFIO_DEVICE_SET_IRQS: {
        const auto* const bytes = static_cast<const std::byte*>(argument);
        Frame frame;
        frame.payload.assign(bytes, bytes + sizeof(SetIrqs));
        const auto request_of_driver = read_struct<SetIrqs>(frame.payload);
        EXPECT_EQ(request_of_driver.argsz, sizeof(SetIrqs) + 8 * sizeof(int));
        for (uint32_t i = 0; i < request_of_driver.count; ++i) {
          int event = -1;
          std::memcpy(&event, bytes + sizeof(SetIrqs) + i * sizeof event, sizeof event);
          frame.descriptors.emplace_back(::dup(event));
        }
        chip(file).vectors.set(frame);
        return 0;
      }
      default:
        return unknown(request);
    }
  }
  static int unknown(unsigned long request) {
    ADD_FAILURE() << "request " << request;
    errno = ENOTTY;
    return -1;
  }

  KernelState& state_;
  FunctionBoard board_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::unique_ptr<Chip>> chips_;
};

Board open(KernelState& state, const std::string& addresses) {
  OpenOptions options;
  options.transport = "null";
  options.factory = [&](const TransportRequest& request, HostMemory& memory) {
    return make_vfio_transport(open_kernel_vfio(addresses, std::make_unique<FakeKernel>(state)),
                               request.params, static_cast<HostArena&>(memory));
  };
  return Board::open(options);
}

std::string refusal(KernelState& state, const std::string& addresses) {
  try {
    open(state, addresses).close();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(KernelVfio, TheDriverWorksOverItsRequests) {
  KernelState state;
  {
    const Board board = open(state, "");
    EXPECT_EQ(state.maps, 2u);  // rings and staging
    for (int device = 0; device < 8; ++device) {
      const HostArray sent =
          test::counting(DType::kU8, {3'000'000}, static_cast<uint8_t>(device + 1));
      const Buffer buffer = board.put(device, sent);
      EXPECT_EQ(board.copy(buffer, 7 - device).to_host().bytes, sent.bytes) << device;
    }
    board.close();
  }
  EXPECT_TRUE(state.open.empty());
}

TEST(KernelVfio, SaysWhatIsMissing) {
  KernelState state;
  EXPECT_THAT(refusal(state, "0000:00:04.0,0000:00:05.0"),
              HasSubstr("there are 2 PCI functions, the board has 4 chips"));
  EXPECT_THAT(refusal(state, "0000:00:04.0,eth0"),
              AllOf(HasSubstr("the PCI function eth0 has no IOMMU group"), HasSubstr("vfio-pci")));
  state.viable = false;
  EXPECT_THAT(refusal(state, ""), HasSubstr("other functions of its IOMMU group 4 have a driver"));
  state = {};
  state.maps_fail = true;
  EXPECT_THAT(refusal(state, ""), AllOf(HasSubstr("ulimit -l"), HasSubstr("aw-bits=48")));
  state = {};
  state.has_container = false;
  EXPECT_THAT(refusal(state, ""), HasSubstr("/dev/vfio/vfio cannot be opened: No such file"));
  EXPECT_TRUE(state.open.empty());
}

}  // namespace
}  // namespace tpu::driver::vfio
