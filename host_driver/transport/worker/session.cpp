#include "transport/worker/session.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "board/board_loader.hpp"
#include "board/chip_lease.hpp"
#include "sim/option_names.hpp"
#include "sync/mutex.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"
#include "tpu/version.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/board_service.hpp"
#include "transport/worker/channel.hpp"
#include "transport/worker/tls.hpp"
#include "transport/worker/worker_messages.hpp"

namespace tpu::driver::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDriverGreetingLimit{10'000};
constexpr std::chrono::milliseconds kLook{100};

// A connection whose driver has said who it is.
struct Greeted {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<FrameReader> reader;
  Hello hello;
};

void send(Stream& stream, Kind kind, std::span<const std::byte> payload) {
  Frame frame;
  frame.kind = kind;
  stream.write(write_frame(frame, payload), -1);
}

void send_refusal(Stream& stream, const Error& error) {
  try {
    send(stream, Kind::kRefused, pack(failure_of(error)));
  } catch (const ConnectionLost&) {
    // Nobody is left who could be told.
  }
}

class Session {
 public:
  Session(const ServeOptions& options, base::Descriptor notes, uint64_t number)
      : options_(options), notes_(std::move(notes)), number_(number), secret_(random_secret()) {
    if (!options_.token.empty()) {
      token_ = read_token(options_.token);
    }
    if (!options_.tls_cert.empty()) {
      tls_ = std::make_unique<TlsServer>(options_.tls_cert, options_.tls_key);
    }
  }

  int run(base::Descriptor connection, bool tls, bool again,
          std::vector<std::shared_ptr<base::Pipe>> wires) {
    Greeted greeted = greet(std::move(connection), tls);
    if (again) {
      const Error error(ErrorCode::kFailedPrecondition,
                        "the worker does not know the session: it has ended, as when the "
                        "connection was away for longer than --linger, or the worker began anew");
      send_refusal(*greeted.stream, error);
      throw error;
    }
    who_ = greeted.hello.who;
    lease(greeted);
    driver_pid_ = greeted.stream->is_local() ? base::peer_of(greeted.stream->socket()).pid : 0;
    want_board(greeted);
    std::thread([this] { take_connections(); }).detach();  // lasts as long as the process
    welcome(greeted);
    Channel channel({std::move(greeted.stream), std::move(greeted.reader), 0},
                    [this](const std::string& why, uint64_t received) {
                      return wait_for_connection(why, received);
                    });
    const Known known(*this, channel);
    const auto done = [this] {
      NoteFrame note;
      note.note = Note::kDone;
      send_note(notes_.number(), note);
    };
    BoardService service(channel, board_, done,
                         {options_.tls_cert, options_.tls_key, std::move(wires)});
    service.serve();
    return 0;
  }

  const std::string& who() const { return who_; }

 private:
  // The thread that takes connections finds the channel as long as it is there.
  class Known {
   public:
    Known(Session& session, Channel& channel) : session_(session) {
      const base::MutexLock lock(session_.mutex_);
      session_.channel_ = &channel;
    }
    Known(const Known&) = delete;
    Known& operator=(const Known&) = delete;
    ~Known() {
      const base::MutexLock lock(session_.mutex_);
      session_.channel_ = nullptr;
    }

   private:
    Session& session_;
  };

  Greeted greet(base::Descriptor connection, bool tls) {
    const bool local = options_.listen.starts_with("unix:");
    Greeted greeted;
    greeted.stream = std::make_unique<SocketStream>(std::move(connection), local);
    greeted.stream->limit_reads(kDriverGreetingLimit);
    const PreambleAnswer answer = make_answer(tls_ != nullptr);
    greeted.stream->write(std::as_bytes(std::span(&answer, 1)), -1);
    if (tls != (tls_ != nullptr)) {
      throw ConnectionLost(tls ? "it wants TLS, which this worker has not"
                               : "it wants no TLS, which this worker has");
    }
    if (tls_) {
      greeted.stream = tls_->wrap(std::move(greeted.stream));
    }
    greeted.reader = std::make_unique<FrameReader>(*greeted.stream);
    const Frame frame = greeted.reader->next(kMostGreetingBytes);
    if (frame.kind != Kind::kHello || frame.number != 0) {
      throw ConnectionLost("it does not begin with a greeting");
    }
    greeted.hello = unpack<Hello>(frame.payload);
    try {
      check(greeted.hello);
    } catch (const Error& error) {
      send_refusal(*greeted.stream, error);
      throw;
    }
    return greeted;
  }

  void check(const Hello& hello) const {
    if (!token_.empty() && !same_secret(token_, hello.token)) {
      throw Error(ErrorCode::kFailedPrecondition,
                  hello.token.empty()
                      ? "the worker needs a token: name the file that has it in "
                        "OpenOptions::connect_token"
                      : "the token is not the worker's (OpenOptions::connect_token)");
    }
    if (hello.version != kVersion) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("the worker is tpuboard {}, this program {}; use one at both",
                              kVersion, hello.version));
    }
  }

  // The board of this session has the chips alone that its driver asks for.
  void lease(Greeted& greeted) {
    board_ = options_.board;
    try {
      const spec::BoardParams whole = spec::load_board(board_.preset, board_.overrides);
      chips_ = spec::read_chips(whole, greeted.hello.chips);
      for (const std::string& each : spec::overrides_of_chips(whole, chips_)) {
        board_.overrides.push_back(each);
      }
    } catch (const spec::BoardError& wrong) {
      const Error error(ErrorCode::kInvalidArgument, wrong.what());
      send_refusal(*greeted.stream, error);
      throw error;
    }
  }

  void want_board(Greeted& greeted) {
    NoteFrame want;
    want.chips = chips_;
    want.waits = greeted.hello.wait_ms > 0;
    want.session = number_;
    std::strncpy(want.text, who_.c_str(), sizeof want.text - 1);
    send_note(notes_.number(), want);
    const auto end = Clock::now() + std::chrono::milliseconds(
                                        std::min<uint64_t>(greeted.hello.wait_ms, UINT32_MAX));
    std::string has;
    for (;;) {
      wait_for_note(*greeted.stream, want.waits, end, has);
      const std::optional<NoteFrame> note = receive_note(notes_.number());
      if (!note) {
        throw ConnectionLost("the worker ends");
      }
      if (note->note == Note::kGiven) {
        return;
      }
      has = std::string(note->text, strnlen(note->text, sizeof note->text));
      if (!want.waits) {
        refuse_taken(*greeted.stream, has);
      }
      send(*greeted.stream, Kind::kQueued, pack(Queued{"waits for a board: " + has}));
    }
  }

  [[noreturn]] static void refuse_taken(Stream& stream, const std::string& has) {
    const Error error(ErrorCode::kResourceExhausted,
                      fmt::format("{}; OpenOptions::connect_wait waits until one is free", has));
    send_refusal(stream, error);
    throw error;
  }

  // A driver that is gone, or has waited long enough, waits no more.
  void wait_for_note(Stream& stream, bool waits, Clock::time_point end, const std::string& has) {
    for (;;) {
      pollfd both[2] = {{notes_.number(), POLLIN, 0}, {stream.socket(), POLLRDHUP, 0}};
      if (::poll(both, 2, static_cast<int>(kLook.count())) <= 0) {
        if (waits && Clock::now() >= end) {
          refuse_taken(stream, has);
        }
        continue;
      }
      if (both[0].revents != 0) {
        return;
      }
      throw ConnectionLost("the driver did not wait for a board");
    }
  }

  void welcome(Greeted& greeted, uint64_t received = 0) {
    Welcome welcome;
    welcome.session = number_;
    welcome.secret = secret_;
    welcome.received = received;
    welcome.linger_ms = static_cast<uint64_t>(options_.linger.count());
    welcome.pid = ::getpid();
    send(*greeted.stream, Kind::kWelcome, pack(welcome));
    greeted.stream->limit_reads({});
  }

  // A thread: connections of the driver that follow the first.
  void take_connections() {
    for (;;) {
      base::Descriptor connection;
      const std::optional<NoteFrame> note = receive_note(notes_.number(), &connection);
      if (!note) {
        ::_exit(1);  // the process that listens has ended
      }
      if (note->note != Note::kConnected || !connection.valid()) {
        continue;
      }
      try {
        Greeted greeted = greet(std::move(connection), note->waits);
        if (greeted.hello.session != number_ || !same_secret(greeted.hello.secret, secret_)) {
          send_refusal(*greeted.stream, Error(ErrorCode::kFailedPrecondition,
                                              "the session belongs to another driver"));
          continue;
        }
        const base::MutexLock lock(mutex_);
        next_ = std::make_unique<Greeted>(std::move(greeted));
        if (channel_ != nullptr) {
          channel_->shut_down();  // whoever waits there goes on here
        }
        turn_.notify_all();
      } catch (const std::exception& error) {
        spec::print(stderr, "tpuboard serve: session {}: a connection is rejected: {}\n", number_,
                    error.what());
      }
    }
  }

  bool driver_is_gone() const {
    return driver_pid_ > 0 && ::kill(driver_pid_, 0) != 0 && errno == ESRCH;
  }

  NextConnection wait_for_connection(const std::string& why, uint64_t received) {
    const auto end = Clock::now() + options_.linger;
    const base::MutexLock lock(mutex_);
    while (!next_) {
      if (Clock::now() >= end || driver_is_gone()) {
        throw Error(ErrorCode::kUnavailable, why);
      }
      turn_.wait_until(mutex_, std::min(end, Clock::now() + kLook));
    }
    Greeted greeted = std::move(*next_);
    next_ = nullptr;
    try {
      welcome(greeted, received);
    } catch (const ConnectionLost&) {
      // The channel finds it, and comes again.
    }
    return {std::move(greeted.stream), std::move(greeted.reader), greeted.hello.received};
  }

  const ServeOptions& options_;
  const base::Descriptor notes_;
  const uint64_t number_;
  const std::vector<std::byte> secret_;
  OpenOptions board_;
  spec::ChipSet chips_ = spec::kAllChips;
  std::vector<std::byte> token_;
  std::unique_ptr<TlsServer> tls_;
  std::string who_ = "a driver that has not said who it is";
  int driver_pid_ = 0;  // on this host; 0: not known
  base::Mutex mutex_;
  base::CondVar turn_;
  Channel* channel_ TPU_GUARDED_BY(mutex_) = nullptr;
  std::unique_ptr<Greeted> next_ TPU_GUARDED_BY(mutex_);
};

}  // namespace

bool send_note(int socket, const NoteFrame& note, int descriptor) {
  return base::send_some(socket, std::as_bytes(std::span(&note, 1)), descriptor) ==
         static_cast<ptrdiff_t>(sizeof note);
}

std::optional<NoteFrame> receive_note(int socket, base::Descriptor* descriptor) {
  NoteFrame note;
  // The sockets keep the bounds of messages.
  if (base::receive_some(socket, std::as_writable_bytes(std::span(&note, 1)), descriptor) !=
      static_cast<ptrdiff_t>(sizeof note)) {
    return std::nullopt;
  }
  return note;
}

int run_session(const ServeOptions& options, base::Descriptor connection, bool tls,
                base::Descriptor notes, uint64_t session, bool again,
                std::vector<std::shared_ptr<base::Pipe>> wires) {
  std::string who;
  try {
    // Never destroyed: a thread of it lasts as long as the process.
    Session& own = *new Session(options, std::move(notes), session);
    try {
      return own.run(std::move(connection), tls, again, std::move(wires));
    } catch (...) {
      who = own.who();
      throw;
    }
  } catch (const std::exception& error) {
    spec::print(stderr, "tpuboard serve: session {} ({}) has ended: {}\n", session, who,
                spec::name_options(error.what(), spec::OptionDoor::kCommandLine));
  }
  return 1;
}

}  // namespace tpu::driver::worker
