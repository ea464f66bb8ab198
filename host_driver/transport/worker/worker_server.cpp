#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <utility>

#include "board/board_loader.hpp"
#include "board/chip_lease.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"
#include "tpu/worker.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/frame.hpp"
#include "transport/worker/session.hpp"
#include "transport/worker/tls.hpp"
#include "transport/worker/token.hpp"

namespace tpu::driver {
namespace {

using namespace worker;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;

constexpr size_t kMostConnections = 64;  // that have not said what they are
constexpr size_t kMostSessions = 256;    // boards, and drivers that wait
constexpr size_t kMostStrangers = 32;    // processes whose driver has not said who it is
constexpr std::chrono::milliseconds kFullPause{200};  // when this process has no room for more

// A connection that has not said what it is.
struct Arrival {
  base::Descriptor socket;
  Clock::time_point since = Clock::now();
  bool begun = false;  // a part of what it is has come: it is looked at now and then
};

// A process with a session.
struct Child {
  pid_t pid = 0;
  base::Descriptor notes;
  uint64_t session = 0;
  bool known = false;  // its driver has said who it is
  bool has_board = false;
  bool waits = false;                     // for a board
  spec::ChipSet chips = spec::kAllChips;  // that it has, or waits for
  int board = 0;                          // that has them
  std::string who;
};

class Server {
 public:
  explicit Server(const ServeOptions& options)
      : options_(options), address_(read_address(options.listen)) {
    spec::load_board(options.board.preset, options.board.overrides);  // what is wrong is said now
    if (options_.tls_cert.empty() != options_.tls_key.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "--tls-cert and --tls-key: expected both, or none");
    }
    if (!options_.tls_cert.empty()) {
      if (address_.is_local()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "--tls-cert: a Unix socket has no TLS: only this user can reach it");
      }
      TlsServer(options_.tls_cert, options_.tls_key);
    }
    if (!options_.token.empty()) {
      read_or_make_token(options_.token);
    } else if (!address_.is_local()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: every user of this host could connect; give --token FILE, which "
                              "is made if it is not there",
                              address_.text));
    }
    ::signal(SIGCHLD, SIG_DFL);  // ignored, the kernel would not tell how children end
    sigset_t signals;
    sigemptyset(&signals);
    for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
      sigaddset(&signals, each);
    }
    ::sigprocmask(SIG_BLOCK, &signals, &signals_before_);
    signals_ = base::Descriptor(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    listener_ = listen_at(address_, !options_.tls_cert.empty());
    ::fcntl(listener_.number(), F_SETFL, ::fcntl(listener_.number(), F_GETFL) | O_NONBLOCK);
    place_ = place_of(address_.path);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() {
    for (const Child& child : children_) {
      ::kill(child.pid, SIGKILL);
    }
    if (address_.is_local() && !in_child_ && place_of(address_.path) == place_) {
      ::unlink(address_.path.c_str());
    }
  }

  /// In a child, its exit code comes back.
  std::optional<int> run() {
    tell_address();
    for (;;) {
      wait();
      if (stopped() || maker_is_gone()) {
        return std::nullopt;
      }
      take_notes();
      accept_all();
      if (const std::optional<int> code = take_preambles()) {
        return code;
      }
      give_boards();
    }
  }

 private:
  void tell_address() const {
    if (options_.maker >= 0) {
      const char listens = 1;
      ::send(options_.maker, &listens, sizeof listens, MSG_NOSIGNAL);
      return;
    }
    spec::print("{}\n", address_.text);
    std::fflush(stdout);
    spec::print(stderr, "tpuboard serve: {} of {}: listens at {}\n",
                options_.boards == 1 ? "a board" : fmt::format("{} boards", options_.boards),
                options_.board.preset, address_.text);
  }

  bool maker_is_gone() const {
    pollfd look{options_.maker, POLLIN, 0};
    return options_.maker >= 0 && ::poll(&look, 1, 0) == 1;
  }

  // A socket of the same name may be another worker's.
  using Place = std::pair<dev_t, ino_t>;
  static Place place_of(const std::string& path) {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0 ? Place(status.st_dev, status.st_ino) : Place();
  }

  // At random: who does not know a session has no way to it, and sessions of an earlier worker at
  // this address are not taken for those of this one.
  uint64_t new_session() const {
    uint64_t session = 0;
    while (session == 0 ||
           std::ranges::find(children_, session, &Child::session) != children_.end()) {
      std::memcpy(&session, random_secret().data(), sizeof session);
    }
    return session;
  }

  void wait() {
    std::vector<pollfd> all = {{signals_.number(), POLLIN, 0},
                               {listener_.number(), POLLIN, 0},
                               {options_.maker, POLLIN, 0}};  // poll() passes over -1
    const bool full = Clock::now() < accepts_again_;
    if (full) {
      all[1].fd = -1;
    }
    for (const Child& child : children_) {
      all.push_back({child.notes.number(), POLLIN, 0});
    }
    bool soon = full;
    for (const Arrival& arrival : arrivals_) {
      if (!arrival.begun) {
        all.push_back({arrival.socket.number(), POLLIN, 0});
      }
      soon |= arrival.begun;
    }
    constexpr int kSoonMilliseconds = 50;
    constexpr int kLookMilliseconds = 500;
    ::poll(all.data(), all.size(),
           soon                ? kSoonMilliseconds
           : arrivals_.empty() ? -1
                               : kLookMilliseconds);
  }

  bool stopped() {
    signalfd_siginfo signal{};
    bool stop = false;
    while (::read(signals_.number(), &signal, sizeof signal) == sizeof signal) {
      stop |= signal.ssi_signo != SIGCHLD;
    }
    for (auto child = children_.begin(); child != children_.end();) {
      int status = 0;
      const pid_t ended = ::waitpid(child->pid, &status, WNOHANG);
      if (ended == child->pid || (ended < 0 && errno == ECHILD)) {
        if (ended == child->pid && WIFSIGNALED(status)) {
          spec::print(stderr, "tpuboard serve: session {} ({}) was ended by signal {}\n",
                      child->session, child->who, WTERMSIG(status));
        }
        std::erase(queue_, child->session);
        child = children_.erase(child);
      } else {
        ++child;
      }
    }
    return stop;
  }

  // Of those that want a board.
  void take_notes() {
    for (Child& child : children_) {
      pollfd look{child.notes.number(), POLLIN, 0};
      if (::poll(&look, 1, 0) != 1 || (look.revents & POLLIN) == 0) {
        continue;
      }
      const std::optional<NoteFrame> note = receive_note(child.notes.number());
      if (note && note->note == Note::kDone) {
        child.has_board = false;  // the process ends when its files are complete
      }
      if (note && note->note == Note::kWant) {
        child.who = std::string(note->text, strnlen(note->text, sizeof note->text));
        child.known = child.waits = true;
        child.chips = note->chips;
        queue_.push_back(child.session);
        give_boards();
        if (child.waits) {
          tell_taken(child);
          if (!note->waits) {
            child.waits = false;
            std::erase(queue_, child.session);
          }
        }
      }
    }
  }

  // The first board on which nobody has one of these chips.
  std::optional<int> free_board(spec::ChipSet chips) const {
    for (int board = 0; board < options_.boards; ++board) {
      if (std::ranges::none_of(children_, [&](const Child& child) {
            return child.has_board && child.board == board && (child.chips & chips) != 0;
          })) {
        return board;
      }
    }
    return std::nullopt;
  }

  std::string what_is_wanted(spec::ChipSet chips) const {
    const std::string boards = fmt::format("all {} boards", options_.boards);
    if (chips == spec::kAllChips) {
      return options_.boards == 1 ? "the board is" : boards + " are";
    }
    return fmt::format("chips {} of {} are", spec::text_of_chips(chips),
                       options_.boards == 1 ? "the board" : boards);
  }

  void tell_taken(const Child& child) const {
    std::string who;
    for (const Child& other : children_) {
      if (other.has_board && (other.chips & child.chips) != 0) {
        who += (who.empty() ? "" : "; ") + other.who;
        if (other.chips != spec::kAllChips) {
          who += " with chips " + spec::text_of_chips(other.chips);
        }
      }
    }
    if (who.empty()) {
      who = "drivers that wait for them";
    }
    const std::string text =
        fmt::format("{} taken, by {}{}", what_is_wanted(child.chips), who,
                    queue_.size() > 1 ? fmt::format(" ({} wait)", queue_.size() - 1) : "");
    NoteFrame note;
    note.note = Note::kTaken;
    std::strncpy(note.text, text.c_str(), sizeof note.text - 1);
    send_note(child.notes.number(), note);
  }

  // In the order of arrival: a driver that comes later does not get chips that an earlier one waits
  // for.
  void give_boards() {
    spec::ChipSet awaited = 0;
    for (auto next = queue_.begin(); next != queue_.end();) {
      Child& child = *std::ranges::find(children_, *next, &Child::session);
      const std::optional<int> board =
          (child.chips & awaited) == 0 ? free_board(child.chips) : std::nullopt;
      if (!board) {
        awaited |= child.chips;
        ++next;
        continue;
      }
      next = queue_.erase(next);
      child.waits = false;
      child.has_board = true;
      child.board = *board;
      NoteFrame note;
      note.note = Note::kGiven;
      if (!send_note(child.notes.number(), note)) {
        ::kill(child.pid, SIGKILL);  // it takes nothing, so it cannot have the board
      }
    }
  }

  // Of those that have been looked at and have said nothing, the eldest make room for others.
  void accept_all() {
    for (size_t silent = arrivals_.size(); silent > 0 || arrivals_.size() < kMostConnections;) {
      base::Descriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket.valid()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          accepts_again_ = Clock::now() + kFullPause;  // it stays in the listener's queue
        }
        return;
      }
      if (address_.is_local()) {
        if (const base::Peer peer = base::peer_of(socket.number()); peer.user != ::getuid()) {
          spec::print(stderr, "tpuboard serve: rejected: user {} (pid {})\n", peer.user, peer.pid);
          continue;
        }
      }
      if (arrivals_.size() == kMostConnections) {
        arrivals_.pop_front();
        --silent;
      }
      arrivals_.push_back({std::move(socket)});
    }
  }

  std::optional<int> take_preambles() {
    for (auto arrival = arrivals_.begin(); arrival != arrivals_.end();) {
      Preamble preamble{};
      const ssize_t got =
          ::recv(arrival->socket.number(), &preamble, sizeof preamble, MSG_PEEK | MSG_DONTWAIT);
      const bool waits =
          got > 0 ? got < static_cast<ssize_t>(sizeof preamble) : got < 0 && errno == EAGAIN;
      arrival->begun = got > 0;
      if (waits && Clock::now() - arrival->since < options_.silence &&
          !(arrival->begun && is_gone(arrival->socket))) {
        ++arrival;
        continue;
      }
      base::Descriptor socket = std::move(arrival->socket);
      arrival = arrivals_.erase(arrival);
      if (waits || got <= 0 || !is_preamble(preamble)) {
        continue;
      }
      ::recv(socket.number(), &preamble, sizeof preamble, 0);
      if (const std::optional<int> code = pass_on(preamble, std::move(socket))) {
        return code;
      }
    }
    return std::nullopt;
  }

  static bool is_gone(const base::Descriptor& socket) {
    pollfd one{socket.number(), POLLRDHUP, 0};
    return ::poll(&one, 1, 0) == 1;
  }

  // One of another version is answered, so that its driver can say what differs.
  static bool is_preamble(const Preamble& preamble) {
    return std::memcmp(preamble.magic, Preamble::kMagic, sizeof preamble.magic) == 0 &&
           (preamble.version != kProtocolVersion || is_intact(preamble));
  }

  // To the process that has the session, or to a new one; in that, its exit code.
  std::optional<int> pass_on(const Preamble& preamble, base::Descriptor socket) {
    const auto known = std::ranges::find(children_, preamble.session, &Child::session);
    if (preamble.session != 0 && known != children_.end()) {
      NoteFrame note;
      note.note = Note::kConnected;
      note.waits = preamble.tls != 0;
      send_note(known->notes.number(), note, socket.number());
      return std::nullopt;
    }
    int ends[2];
    limit_strangers();
    if (children_.size() >= kMostSessions + kMostStrangers ||
        ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      return std::nullopt;  // the connection ends
    }
    base::Descriptor here(ends[0]);
    base::Descriptor there(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);  // a session that is busy holds up nobody else
    const uint64_t session = new_session();
    const pid_t pid = ::fork();
    if (pid == 0) {
      become_child();
      here = base::Descriptor();
      return run_session(options_, std::move(socket), preamble.tls != 0, std::move(there), session,
                         preamble.session != 0);
    }
    if (pid > 0) {
      Child& child = children_.emplace_back();
      child.pid = pid;
      child.notes = std::move(here);
      child.session = session;
      child.who = "a new driver";
    }
    return std::nullopt;
  }

  // Who has no token must not keep out those that have: the eldest of them goes.
  void limit_strangers() {
    if (std::ranges::count(children_, false, &Child::known) <
        static_cast<ptrdiff_t>(kMostStrangers)) {
      return;
    }
    const auto eldest = std::ranges::find(children_, false, &Child::known);
    spec::print(stderr,
                "tpuboard serve: session {} is ended: {} others have not said who they are\n",
                eldest->session, kMostStrangers - 1);
    ::kill(eldest->pid, SIGKILL);
    ::waitpid(eldest->pid, nullptr, 0);
    children_.erase(eldest);
  }

  void become_child() {
    in_child_ = true;
    children_.clear();
    arrivals_.clear();
    listener_ = base::Descriptor();
    signals_ = base::Descriptor();
    if (options_.maker >= 0) {
      ::close(options_.maker);
    }
    ::sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
    ::setpgid(0, 0);  // Ctrl-C is for the process that listens
    // It ends with that one in the same moment, also when it is stopped. One that has ended before
    // is found by the end of the notes.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  }

  const ServeOptions& options_;
  Address address_;
  sigset_t signals_before_{};
  base::Descriptor signals_, listener_;
  Place place_;  // of a Unix socket
  bool in_child_ = false;
  std::list<Arrival> arrivals_;
  Clock::time_point accepts_again_;
  std::list<Child> children_;
  std::deque<uint64_t> queue_;  // sessions that wait for a board
};

}  // namespace

void serve_boards(const ServeOptions& options) {
  std::optional<int> code;
  {
    Server server(options);
    code = server.run();
  }
  if (code) {
    std::fflush(nullptr);
    ::_exit(*code);
  }
}

}  // namespace tpu::driver
