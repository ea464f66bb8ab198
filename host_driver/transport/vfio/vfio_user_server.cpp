// The loop of a board whose chips are PCI functions for programs in other processes. Simulated time
// passes while anything is in flight, and stops for each frame that comes.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "board/board_loader.hpp"
#include "src/texts/firmware.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"
#include "tpu/vfio_user.hpp"
#include "transport/vfio/pci_function.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/board_service.hpp"
#include "transport/worker/run_watch.hpp"

namespace tpu::driver {
namespace {

using namespace vfio;  // NOLINT(google-build-using-namespace)

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAcceptPause{200};  // when this process has no room for more

// Memory as each chip sees it: that of its client.
class ChipMemories final : public HostMemory {
 public:
  explicit ChipMemories(const std::vector<std::unique_ptr<PciFunction>>& functions)
      : functions_(functions) {}
  std::span<std::byte> span(uint64_t /*iova*/, uint64_t /*bytes*/, bool /*write*/) override {
    return {};  // the board has no memory beside that of its chips
  }
  HostMemory& of_chip(int chip) override {
    return functions_.at(static_cast<size_t>(chip))->memory();
  }

 private:
  const std::vector<std::unique_ptr<PciFunction>>& functions_;
};

class VfioUserServer {
 public:
  explicit VfioUserServer(const VfioUserOptions& options)
      : options_(options), memories_(functions_), poll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (options_.folder.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "--vfio-user: expected the name of a folder");
    }
    const spec::BoardParams params =
        spec::load_board(options_.board.preset, options_.board.overrides);
    const auto chips = static_cast<int>(spec::chip_count(params));
    for (int chip = 0; chip < chips; ++chip) {
      functions_.push_back(std::make_unique<PciFunction>(
          board_, chip, PciId{options_.vendor, options_.device}, [chip](const std::string& text) {
            spec::print(stderr, "tpuboard serve: chip {}: {}\n", chip, text);
          }));
    }
    block_signals();
    make_board(params);
    for (int chip = 0; chip < chips; ++chip) {
      listen(chip);
    }
  }
  VfioUserServer(const VfioUserServer&) = delete;
  VfioUserServer& operator=(const VfioUserServer&) = delete;
  ~VfioUserServer() {
    for (const Listener& listener : listeners_) {
      ::unlink(listener.address.path.c_str());
    }
  }

  void run() {
    spec::print("{}\n", std::filesystem::absolute(options_.folder).string());
    std::fflush(stdout);
    spec::print(stderr, "tpuboard serve: {} chips of {}: listens at {}/chip0.sock ..\n",
                functions_.size(), options_.board.preset, options_.folder);
    try {
      while (look()) {
        if (!board_.quiet) {
          advance();
        }
      }
    } catch (...) {
      for (const auto& function : functions_) {
        function->raise_error();
      }
      throw;
    }
    if (const std::string unwritten = transport_->close(); !unwritten.empty()) {
      throw Error(ErrorCode::kFailedPrecondition, unwritten);
    }
  }

 private:
  struct Listener {
    worker::Address address;
    base::Descriptor socket;
  };

  void block_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) {
      sigaddset(&signals, each);
    }
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);
    signals_ = base::Descriptor(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    watch_for(signals_.number());
  }

  void watch_for(int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.fd = descriptor;
    if (::epoll_ctl(poll_.number(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
      throw Error(ErrorCode::kResourceExhausted,
                  fmt::format("cannot watch a socket: {}", std::strerror(errno)));
    }
  }

  void make_board(const spec::BoardParams& params) {
    TransportRequest request;
    request.params = params;
    request.sim = options_.board.sim;
    const FirmwareImage image = firmware_of(options_.board);
    request.firmware = image.names;  // what drivers load is most often this build's
    transport_ = worker::make_board(options_.board.transport, request, memories_);
    board_.transport = transport_.get();
    watch_ = std::make_unique<worker::RunWatch>([this] { transport_->interrupt(); });
    board_.before_wait = [this] {
      if (running_) {
        watch_->end();
      }
    };
    board_.behind_wait = [this](bool rest) {
      if (running_) {
        if (rest) {
          transport_->interrupt();
        }
        watch_->begin(poll_.number(), pause_left());
      }
    };
  }

  void listen(int chip) {
    std::error_code error;
    std::filesystem::create_directories(options_.folder, error);
    if (error) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("--vfio-user: the folder '{}' cannot be made: {}", options_.folder,
                              error.message()));
    }
    Listener listener;
    listener.address =
        worker::read_address(fmt::format("unix:{}/chip{}.sock", options_.folder, chip));
    listener.socket = worker::listen_at(listener.address, false);
    ::fcntl(listener.socket.number(), F_SETFL, O_NONBLOCK);
    watch_for(listener.socket.number());
    listeners_.push_back(std::move(listener));
  }

  // Waits while nothing is in flight. False: the process is to end.
  bool look() {
    const bool rest =
        std::ranges::any_of(functions_, [](const auto& each) { return each->has_rest(); });
    epoll_event events[16];
    const int pause = !board_.quiet || rest ? 0
                      : is_full_            ? static_cast<int>(pause_left().count()) + 1
                                            : -1;
    const int count = ::epoll_wait(poll_.number(), events, std::size(events), pause);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd == signals_.number()) {
        return false;
      }
    }
    if (is_full_ && Clock::now() >= accepts_again_) {
      listen_again(true);
    }
    for (size_t chip = 0; chip < functions_.size(); ++chip) {
      accept(chip);
      if (functions_[chip]->connected()) {
        functions_[chip]->serve();
      }
    }
    return true;
  }

  // What waits in a listener's queue would wake this process at once, and again.
  void listen_again(bool again) {
    is_full_ = !again;
    accepts_again_ = Clock::now() + kAcceptPause;
    for (const Listener& listener : listeners_) {
      epoll_event event{};
      event.events = again ? uint32_t{EPOLLIN} : 0U;
      event.data.fd = listener.socket.number();
      ::epoll_ctl(poll_.number(), EPOLL_CTL_MOD, listener.socket.number(), &event);
    }
  }

  // Until the listeners are looked at again; 0: they are looked at.
  std::chrono::milliseconds pause_left() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(accepts_again_ - Clock::now());
    return is_full_ ? std::max(left, std::chrono::milliseconds(1)) : std::chrono::milliseconds(0);
  }

  void accept(size_t chip) {
    if (is_full_) {
      return;
    }
    base::Descriptor socket(::accept4(listeners_[chip].socket.number(), nullptr, nullptr,
                                      SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        listen_again(false);
      }
      return;
    }
    const base::Peer peer = base::peer_of(socket.number());
    PciFunction& function = *functions_[chip];
    if (peer.user != ::getuid() && peer.user != 0) {
      spec::print(stderr, "tpuboard serve: chip {}: rejected: user {} (pid {})\n", chip, peer.user,
                  peer.pid);
      return;
    }
    if (function.connected()) {
      function.serve();  // its client may have gone
    }
    if (function.connected()) {
      spec::print(stderr, "tpuboard serve: chip {}: rejected: pid {}: another program has it\n",
                  chip, peer.pid);
      return;
    }
    try {
      watch_for(socket.number());
    } catch (const Error& error) {
      spec::print(stderr, "tpuboard serve: chip {}: rejected: pid {}: {}\n", chip, peer.pid,
                  error.message());
      return;
    }
    function.connect(std::move(socket));
  }

  void advance() {
    watch_->begin(poll_.number(), pause_left());
    running_ = true;
    RunOutcome outcome;
    try {
      outcome = board_.until == 0 ? transport_->run() : transport_->run_until(board_.until);
    } catch (...) {
      running_ = false;
      watch_->end();
      throw;
    }
    running_ = false;
    watch_->end();
    // Whoever wanted time to pass looks at an interrupt first.
    const bool interrupts = std::ranges::any_of(outcome.msi, [](uint32_t msi) { return msi != 0; });
    if (board_.until != 0 && (interrupts || transport_->now() >= board_.until)) {
      board_.until = 0;
    }
    board_.quiet = outcome.quiescent && board_.until == 0;
    for (size_t chip = 0; chip < functions_.size(); ++chip) {
      functions_[chip]->memory().flush();
    }
    for (size_t chip = 0; chip < functions_.size() && chip < outcome.msi.size(); ++chip) {
      functions_[chip]->raise(outcome.msi[chip]);
    }
    for (const ConsoleLine& line : outcome.console) {
      spec::print(stderr, "[TPU:{} firmware] {}\n", line.device, line.text);
    }
  }

  const VfioUserOptions& options_;
  FunctionBoard board_;
  std::vector<std::unique_ptr<PciFunction>> functions_;  // one a chip
  ChipMemories memories_;
  base::Descriptor poll_, signals_;
  std::vector<Listener> listeners_;  // one a chip
  bool is_full_ = false;             // the listeners are not looked at
  Clock::time_point accepts_again_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<worker::RunWatch> watch_;
  bool running_ = false;
};

}  // namespace

void serve_vfio_user(const VfioUserOptions& options) { VfioUserServer(options).run(); }

}  // namespace tpu::driver
