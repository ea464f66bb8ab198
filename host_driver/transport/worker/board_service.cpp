#include "transport/worker/board_service.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "file/crc32c.hpp"
#include "options/option_wire.hpp"
#include "src/texts/firmware.hpp"
#include "transport/worker/peer_tls.hpp"
#include "transport/worker/pod_options.hpp"

namespace tpu::driver::worker {
namespace {

[[noreturn]] void differs(const std::string& what, const std::string& here,
                          const std::string& there, const std::string& advice) {
  throw Error(
      ErrorCode::kFailedPrecondition,
      fmt::format("{}: the worker has {}, this program asks for {}{}", what, here, there, advice));
}

void check_numbers(const std::vector<std::string>& here, const std::vector<std::string>& there) {
  for (size_t i = 0; i < here.size(); ++i) {
    const std::string other = i < there.size() ? there[i] : "nothing";
    if (here[i] != other) {
      const spec::BoardKey& key = spec::kBoardKeys.at(i);
      differs(fmt::format("the board's {}.{}", key.section, key.name), here[i], other,
              "; both need the same OpenOptions::preset and OpenOptions::overrides");
    }
  }
}

bool is_answered(Kind kind) {
  return kind == Kind::kAttach || kind == Kind::kListen || kind == Kind::kRead ||
         kind == Kind::kRun || kind == Kind::kCall || kind == Kind::kClose;
}

// What comes often, and what is done in little time.
bool is_short(Kind kind) {
  return kind == Kind::kRead || kind == Kind::kWrites || kind == Kind::kBlock ||
         kind == Kind::kRun || kind == Kind::kName || kind == Kind::kPrepares ||
         kind == Kind::kInterrupt;
}

Error broken_model(const std::exception& error) {
  return {ErrorCode::kInternal, fmt::format("the board model failed: {}", error.what())};
}

}  // namespace

std::unique_ptr<Transport> make_board(const std::string& transport, const TransportRequest& request,
                                      HostMemory& memory, const PodPart& part) {
  if (transport == "null") {
    return make_null_transport(request, memory);
  }
  std::unique_ptr<Transport> made = make_sim_transport(request, memory, part);
  if (made == nullptr) {
    throw Error(ErrorCode::kUnimplemented,
                "the worker's build has no simulated board; only the transport 'null' is there");
  }
  return made;
}

BoardService::BoardService(Channel& channel, const OpenOptions& options, std::function<void()> done,
                           WireEnds ends)
    : channel_(channel),
      options_(options),
      done_(std::move(done)),
      ends_(std::move(ends)),
      memory_(
          channel, [this] { asks_in_run_ = watch_ && watch_->end(); },
          [this](bool interrupted) {
            if (asks_in_run_) {
              watch(interrupted);
            } else if (interrupted && board_) {
              board_->interrupt();  // of a run that begins yet
            }
          }) {}

BoardService::~BoardService() = default;

Transport& BoardService::board() {
  if (!board_) {
    throw Error(ErrorCode::kFailedPrecondition, "the driver has not said which board it expects");
  }
  return *board_;
}

void BoardService::attach(const Attach& attach) {
  const spec::BoardParams params = spec::load_board(options_.preset, options_.overrides);
  check_numbers(board_numbers(params), attach.numbers);
  if (attach.transport != options_.transport) {
    differs("OpenOptions::transport", options_.transport, attach.transport, "");
  }
  TransportRequest request;
  request.params = params;
  request.sim = merged_options(options_.sim, attach.sim);
  if (!part_.pipes.empty() && !sockets_) {
    check_nothing_added(request.sim, attach.sim);  // the driver's own boards have what it asks for
  }
  const FirmwareImage image = firmware_of(options_);
  const uint32_t firmware = spec::crc32c(image.bytes);
  if (firmware != attach.firmware &&
      (!options_.firmware_file.empty() || !request.sim.firmware_log.empty())) {
    differs("the firmware", fmt::format("{:08x}", firmware), fmt::format("{:08x}", attach.firmware),
            "; both need the same OpenOptions::firmware_file and SimOptions::firmware_log");
  }
  if (firmware == attach.firmware) {
    request.firmware = image.names;
    request.sim.waves_trigger =
        trigger_with_address(*image.names, image.build, request.sim.waves_trigger);
  }
  if (part_.ranks > 1) {
    check_part(request.sim, options_.transport);
  }
  board_ = make_board(options_.transport, request, memory_, part_);
  watch_ = std::make_unique<RunWatch>([this] { board_->interrupt(); });
  sim_ = request.sim;
  // A debugger is served while the thread of the board waits for calls.
  goes_inside_ = sim_.gdb.empty();
  chips_ = static_cast<int>(spec::chip_count(params));
}

void BoardService::map(const Message& message) {
  const auto map = unpack<Map>(message.bytes);
  memory_.map(map.iova, map.bytes, base::Descriptor(::dup(message.descriptor.number())));
}

std::vector<std::byte> BoardService::listen() {
  if (board_ || sockets_) {
    refuse_message("the worker listens already");
  }
  const bool far = !ends_.certificate.empty();
  sockets_.emplace(channel_.socket(), far);
  return pack(Listens{sockets_->address(), sockets_->is_loopback()});
}

void BoardService::take_part(const Message& message) {
  const auto part = unpack<Part>(message.bytes);
  if (board_ || part_.ranks > 1 || part.rank >= part.ranks || part.ranks > kMostRanks) {
    refuse_message("a part of a pod: its numbers are wrong, or it comes too late");
  }
  part_.rank = part.rank;
  part_.ranks = part.ranks;
  if (part.bytes != 0) {
    wires_.emplace(
        base::SharedMemory::map(base::Descriptor(::dup(message.descriptor.number())), part.bytes));
    part_.memory = wires_->bytes();
    return;
  }
  if (!ends_.pipes.empty()) {
    if (ends_.pipes.size() != part.ranks) {
      refuse_message("a part of a pod: there are more processes, or less");
    }
    part_.pipes = std::exchange(ends_.pipes, {});
    return;
  }
  if (!sockets_ || part.addresses.size() != part.ranks) {
    refuse_message("a part of a pod: there is neither memory nor an address of each worker");
  }
  std::optional<PeerTls> tls;
  if (!ends_.certificate.empty()) {
    tls.emplace(ends_.certificate, ends_.key, part.trusted);
  }
  part_.pipes = sockets_->connect(part.rank, {part.addresses, part.names, part.secret}, tls,
                                  channel_.socket());
}

void BoardService::check_place(int chip, int bar) const {
  constexpr int kBars = 6;
  if (chip < 0 || chip >= chips_ || bar < 0 || bar >= kBars) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("BAR {} of chip {}: the board has the chips 0 to {}", bar, chip, chips_ - 1));
  }
}

std::vector<std::byte> BoardService::read(const Read& read) {
  check_place(read.chip, read.bar);
  const uint32_t value = board().read32(read.chip, read.bar, read.offset);
  return pack(Value{value, board().now()});
}

// The driver's wish that a run ends may have come before this run, or while the board asked the
// driver: nobody else would find it there. One that is too late ends the next run early, which the
// driver then begins again.
void BoardService::watch(bool interrupted) {
  if (interrupted || channel_.has_rest()) {
    board_->interrupt();
  }
  watch_->begin(channel_.socket(), limit_);
}

// In the thread of the board.
bool BoardService::tell(const PausedRun& run) {
  memory_.flush();
  Msi msi{{run.msi.begin(), run.msi.end()}, run.now, run.quiescent, false};
  msi.complete = goes_inside_ && !run.has_console;
  channel_.post(Kind::kMsi, pack(msi));
  watch_->end();
  bool done = false;
  bool interrupted = false;
  try {
    for (bool answered = false; !answered;) {
      const Message message = channel_.receive();
      if (message.kind == Kind::kHandled) {
        done = unpack<Flag>(message.bytes).value;
        answered = true;
      } else if (message.kind == Kind::kInterrupt) {
        interrupted = true;
      } else {
        refuse_message("expected what became of an interrupt");
      }
    }
  } catch (const Error& error) {
    memory_.lose(error.message());  // next() finds it
    interrupted = true;
  }
  told_end_ = msi.complete && !done;
  if (!told_end_) {
    watch(interrupted);
  }
  return done;
}

void BoardService::run(const Run& run) {
  limit_ = std::chrono::nanoseconds(std::max<int64_t>(run.limit_ns, 0));
  board().limit_run(limit_);
  watch(false);
  Stopped stopped;
  try {
    if (run.has_until) {
      stopped.outcome = board().run_until(run.until);
    } else if (run.handles) {
      stopped.outcome =
          board().run_handling([this](const PausedRun& paused) { return tell(paused); });
    } else {
      stopped.outcome = board().run();
    }
  } catch (...) {
    watch_->end();
    throw;
  }
  watch_->end();
  if (!told_end_) {
    stopped.now = board().now();
    post_answer(pack(std::move(stopped)));
  }
}

Answer BoardService::call(const Call& call) {
  Answer answer;
  answer.kind = call.kind;
  switch (call.kind) {
    case CallKind::kStats:
      answer.stats = board().stats();
      break;
    case CallKind::kWaits:
      answer.waits = board().waits();
      break;
    case CallKind::kForecast:
      answer.forecast = board().thread_forecast({call.threads.begin(), call.threads.end()});
      break;
    case CallKind::kFindings:
      answer.findings = board().take_findings();
      break;
    case CallKind::kDebugRead: {
      const std::optional<uint32_t> value = board().debug_read(call.device, call.address);
      answer.done = value.has_value();
      answer.value = value.value_or(0);
      break;
    }
    case CallKind::kDebugWrite:
      answer.done = board().debug_write(call.device, call.address, call.value);
      break;
    case CallKind::kOpTimes:
      answer.tallies = board().take_op_times(call.value);
      break;
    case CallKind::kXspace:
      answer.text = board().take_xspace();
      break;
    case CallKind::kRecord:
      answer.text = board().take_record();
      break;
    case CallKind::kConsole:
      answer.console = board().take_console();
      break;
    case CallKind::kChangeSim:
      // What the user does not name stays; merged with the worker's own, as at the beginning.
      answer.sim = merged_options(options_.sim, call.sim);
      answer.text = board().change_sim(answer.sim);
      sim_ = answer.sim;
      break;
  }
  return answer;
}

void BoardService::name(const Name& name) {
  const auto found = programs_.find(name.program);
  board().name_launch(name.launch, found == programs_.end() ? nullptr : found->second,
                      name.trace_context);
}

Answer BoardService::close() {
  Answer answer;
  answer.kind = CallKind::kRecord;  // a text alone
  if (board_) {
    answer.text = board_->close();
  }
  return answer;
}

void BoardService::post_answer(std::span<const std::byte> answer) {
  memory_.flush();
  channel_.post(Kind::kAnswer, answer);
}

bool BoardService::serve_one(Message& message) {
  told_end_ = false;  // of the run before: that of this message is what fail() asks for
  switch (message.kind) {
    case Kind::kAttach:
      if (board_) {
        refuse_message("the board is there already");
      }
      attach(unpack<Attach>(message.bytes));
      post_answer(pack(Attached{sim_}));
      break;
    case Kind::kMap:
      map(message);
      break;
    case Kind::kListen:
      post_answer(listen());
      break;
    case Kind::kPart:
      take_part(message);
      break;
    case Kind::kRead:
      post_answer(read(unpack<Read>(message.bytes)));
      break;
    case Kind::kWrites: {
      const auto writes = unpack<Writes>(message.bytes).writes;
      for (const RegisterWrite& write : writes) {
        check_place(write.chip, write.bar);
      }
      board().write32_many(writes);
      break;
    }
    case Kind::kBlock: {
      const auto block = unpack<Block>(message.bytes);
      check_place(block.chip, block.bar);
      board().write_block(block.chip, block.bar, block.offset, block.data);
      break;
    }
    case Kind::kRun:
      run(unpack<Run>(message.bytes));
      break;
    case Kind::kCall:
      post_answer(pack(call(unpack<Call>(message.bytes))));
      break;
    case Kind::kProgram: {
      const auto program = unpack<Program>(message.bytes);
      programs_[program.program] =
          std::make_shared<exe::ExecutableT>(exe::read_executable(program.executable));
      break;
    }
    case Kind::kName:
      name(unpack<Name>(message.bytes));
      break;
    case Kind::kPrepares:
      board().host_prepares(unpack<Flag>(message.bytes).value);
      break;
    case Kind::kInterrupt:
      board().interrupt();  // of a run that begins yet, or of one that is over
      break;
    case Kind::kClose:
      message.bytes = pack(close());
      done_();
      post_answer(message.bytes);
      channel_.flush();
      return false;
    default:
      refuse_message("it is not the part of a driver");
  }
  return true;
}

void BoardService::fail(Kind kind, const Error& error) {
  memory_.flush();
  channel_.post(Kind::kFailure, pack(failure_of(error)));
  if (!is_answered(kind) || told_end_ || !board_) {
    done_();
    // The driver finds the error in the place of its next answer, and nothing behind it.
    channel_.flush();
    throw error;
  }
}

/// False: the board is closed.
bool BoardService::answer(Message& message) {
  try {
    return serve_one(message);
  } catch (const Error& error) {
    fail(message.kind, error);
  } catch (const std::exception& error) {
    fail(message.kind, broken_model(error));
  }
  return true;
}

Message BoardService::next() {
  if (!memory_.trouble().empty()) {
    throw Error(ErrorCode::kUnavailable, memory_.trouble());
  }
  return channel_.receive();
}

/// The message and those that follow it, up to one that is not for the thread of the board.
void BoardService::serve_inside(Message& message, bool& more) {
  bool begun = false;
  bool over = false;
  std::exception_ptr ended;
  try {
    board_->inside([&] {
      begun = true;
      try {
        while (more && is_short(message.kind)) {
          more = answer(message);
          message = more ? next() : Message();
        }
      } catch (...) {
        ended = std::current_exception();
      }
      over = true;
    });
  } catch (const std::exception& error) {
    if (!over) {  // the thread of the board has ended
      goes_inside_ = false;
      watch_->end();
      if (begun) {
        fail(message.kind, broken_model(error));
        message = next();
      }
    }
  }
  if (ended) {
    std::rethrow_exception(ended);
  }
}

void BoardService::serve() {
  for (bool more = true; more;) {
    Message message = next();
    if (goes_inside_ && is_short(message.kind)) {
      serve_inside(message, more);
    }
    more = more && answer(message);
  }
}

}  // namespace tpu::driver::worker
