// The calls of a session, one function each.
#include "processes/board_calls.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "processes/wire/failure.hpp"
#include "runtime/local_array.hpp"

namespace tpu::pjrt {
namespace {

[[noreturn]] void refuse_number(const char* kind, uint64_t number) {
  throw driver::Error(driver::ErrorCode::kInvalidArgument,
                      fmt::format("a process names {} {}, which it does not have", kind, number));
}

template <class Map>
const typename Map::mapped_type& find(const Map& all, uint64_t number, const char* kind) {
  const auto it = all.find(number);
  if (it == all.end()) {
    refuse_number(kind, number);
  }
  return it->second;
}

template <class Map>
void add(Map& all, uint64_t number, typename Map::mapped_type value, const char* kind) {
  if (number == 0 || !all.emplace(number, std::move(value)).second) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        fmt::format("a process makes {} {} again", kind, number));
  }
}

[[noreturn]] void refuse_call(const std::string& text) {
  throw driver::Error(driver::ErrorCode::kInvalidArgument, text);
}

driver::Error error_in(const std::unique_ptr<wire::FailureT>& failure) {
  return failure == nullptr ? driver::Error(driver::ErrorCode::kInternal, "a process gave it up")
                            : error_of(*failure);
}

driver::DType dtype_of(uint8_t number) {
  const auto dtype = static_cast<driver::DType>(number);
  static_cast<void>(driver::dtype_bytes(dtype));  // throws for a number that is no type
  return dtype;
}

}  // namespace

void BoardCalls::answer(ReceivedFrame& received, const Tell& tell) {
  const wire::BodyUnion& body = received.frame.body;
  if (const wire::HelloT* hello = body.AsHello()) {
    return tell(greet(*hello));
  }
  if (!greeted_) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        "a process must say who it is before it uses the board");
  }
  if (body.type == wire::Body::BeginProfile) {
    return profile_.begin(host_.profile(), host_.runtime(), tell);
  }
  if (const wire::EndProfileT* end = body.AsEndProfile()) {
    return profile_.take(host_.profile(), host_.runtime(), *end, tell);
  }
  tell(transfer(received));
}

wire::AnswerT BoardCalls::greet(const wire::HelloT& hello) {
  if (greeted_) {
    refuse_call("a process says who it is once");
  }
  devices_ = host_.greet(hello);
  hello_ = hello;
  greeted_ = true;
  wire::AnswerT welcome;
  welcome.number = static_cast<uint64_t>(::getpid());
  return welcome;
}

wire::AnswerT BoardCalls::transfer(ReceivedFrame& received) {
  wire::BodyUnion& body = received.frame.body;
  switch (body.type) {
    case wire::Body::Segment:
      segments_.add(*body.AsSegment(), std::move(received.descriptor));
      return {};
    case wire::Body::DropSegment:
      segments_.drop(body.AsDropSegment()->segment);
      return {};
    case wire::Body::Put:
      put(*body.AsPut());
      return {};
    case wire::Body::PutLater:
      put_later(*body.AsPutLater());
      return {};
    case wire::Body::Fill:
      fill(*body.AsFill());
      return {};
    case wire::Body::Zeros:
      zeros(*body.AsZeros());
      return {};
    case wire::Body::Copy:
      copy(*body.AsCopy());
      return {};
    case wire::Body::Read:
      read(*body.AsRead());
      return {};
    case wire::Body::Watch:
      watch(*body.AsWatch());
      return {};
    case wire::Body::Discard:
      array(body.AsDiscard()->array)->discard();
      return {};
    case wire::Body::DropArray:
      arrays_.erase(body.AsDropArray()->array);
      return {};
    default:
      return control(received);
  }
}

wire::AnswerT BoardCalls::control(ReceivedFrame& received) {
  wire::BodyUnion& body = received.frame.body;
  wire::AnswerT made;
  switch (body.type) {
    case wire::Body::Address:
      made.number = array(body.AsAddress()->array)->address();
      break;
    case wire::Body::Load:
      load(*body.AsLoad());
      break;
    case wire::Body::Unload:
      program(body.AsUnload()->program).loaded->unload();
      break;
    case wire::Body::DropProgram:
      programs_.erase(body.AsDropProgram()->program);
      break;
    case wire::Body::Launch:
      launch(*body.AsLaunch());
      break;
    case wire::Body::Refuse:
      refuse(*body.AsRefuse());
      break;
    case wire::Body::Leave:
      check_devices(body.AsLeave()->devices);
      host_.runtime().leave(body.AsLeave()->devices, error_in(body.AsLeave()->failure));
      break;
    case wire::Body::HostWork:
      host_work(body.AsHostWork()->begins);
      break;
    case wire::Body::DeviceUse:
      return device_use(*body.AsDeviceUse());
    default:
      refuse_call(fmt::format("a call of the unknown kind {}", static_cast<int>(body.type)));
  }
  return made;
}

// The error goes to others first: what waits for this process would fail with less of a reason when
// its arrays go.
void BoardCalls::end(const std::string& why) {
  if (!greeted_) {
    return;
  }
  const driver::Error error = host_.lose(hello_, devices_, why);
  for (const auto& [number, filling] : fillings_) {
    fail_event(filling.filled, error);
  }
  fillings_.clear();
  arrays_.clear();
  programs_.clear();
  host_work_.clear();
  host_.leave(hello_);  // a process with its number may come while the profile ends
  profile_.end(host_.profile(), host_.runtime());
}

void BoardCalls::check_devices(const std::vector<int>& devices) const {
  std::ranges::for_each(devices, [this](int device) { check_device(device); });
}

void BoardCalls::check_device(int device) const {
  if (std::ranges::find(devices_, device) == devices_.end()) {
    throw driver::Error(
        driver::ErrorCode::kInvalidArgument,
        fmt::format("TPU:{} belongs to another process than process {}", device, hello_.process));
  }
}

void BoardCalls::add_array(uint64_t number, DeviceArrayPtr made) {
  add(arrays_, number, std::move(made), "array");
}

const DeviceArrayPtr& BoardCalls::array(uint64_t number) const {
  return find(arrays_, number, "array");
}

const BoardCalls::Program& BoardCalls::program(uint64_t number) const {
  return find(programs_, number, "program");
}

void BoardCalls::tell_when_ready(const driver::Event& event, uint64_t number) const {
  event.on_ready([out = out_, number](const std::shared_ptr<const driver::Error>& error) {
    wire::EventDoneT done;
    done.event = number;
    done.failure = failure_of(error);
    out->post(frame_of(std::move(done)));
  });
}

void BoardCalls::put(const wire::PutT& call) {
  check_device(call.device);
  const driver::HostView view(dtype_of(call.dtype), call.dims, segments_.bytes_of(call.bytes));
  add_array(call.array, host_.runtime().put(call.device, view));
}

void BoardCalls::put_later(const wire::PutLaterT& call) {
  check_device(call.device);
  const driver::DType dtype = dtype_of(call.dtype);
  const uint64_t bytes = driver::byte_count(dtype, call.dims);
  if (const uint64_t room = host_.runtime().device_info(call.device).hbm_limit; bytes > room) {
    throw driver::Error(
        driver::ErrorCode::kResourceExhausted,
        fmt::format("an array of {} bytes on TPU:{}, which has {}", bytes, call.device, room));
  }
  Filling filling{host_.runtime().make_event(), std::make_shared<std::vector<std::byte>>(bytes)};
  add_array(call.array, host_.runtime().put(call.device, dtype, call.dims, filling.bytes,
                                            filling.filled.event()));
  add(fillings_, call.array, std::move(filling), "array");
}

void BoardCalls::fill(const wire::FillT& call) {
  const Filling filling = find(fillings_, call.array, "array to fill");
  if (call.failure == nullptr) {
    const std::span<const std::byte> bytes = segments_.bytes_of(call.bytes);
    if (bytes.size() != filling.bytes->size()) {
      throw driver::Error(
          driver::ErrorCode::kInvalidArgument,
          fmt::format("{} bytes for an array of {}", bytes.size(), filling.bytes->size()));
    }
    std::ranges::copy(bytes, filling.bytes->begin());
  }
  fillings_.erase(call.array);
  if (call.failure == nullptr) {
    filling.filled.set();
  } else {
    filling.filled.fail(error_of(*call.failure));
  }
}

void BoardCalls::zeros(const wire::ZerosT& call) {
  check_device(call.device);
  add_array(call.array, host_.runtime().zeros(call.device, dtype_of(call.dtype), call.dims));
}

void BoardCalls::copy(const wire::CopyT& call) {
  check_device(call.device);
  add_array(call.array, host_.runtime().copy(*array(call.source), call.device));
}

// Into shared memory, which stays until the copy is over; or along with the event.
void BoardCalls::read(const wire::ReadT& call) {
  const DeviceArrayPtr& source = array(call.array);
  if (call.segment == 0 && call.size > kMostInFrame) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        fmt::format("{} bytes in a frame; at most {}", call.size, kMostInFrame));
  }
  const SegmentTable::Segment shared =
      call.segment == 0 ? nullptr : segments_.at(call.segment, call.size);
  const auto own = std::make_shared<std::vector<uint8_t>>(shared == nullptr ? call.size : 0);
  const std::span<std::byte> out = shared == nullptr ? std::as_writable_bytes(std::span(*own))
                                                     : shared->bytes().first(call.size);
  const driver::Event event = source->read(call.first, out);
  event.on_ready([queue = out_, shared, own,
                  number = call.event](const std::shared_ptr<const driver::Error>& error) {
    wire::EventDoneT done;
    done.event = number;
    done.failure = failure_of(error);
    done.bytes = std::move(*own);
    queue->post(frame_of(std::move(done)));
  });
}

void BoardCalls::watch(const wire::WatchT& call) {
  try {
    tell_when_ready(array(call.array)->ready(), call.event);
  } catch (...) {
    wire::EventDoneT done;
    done.event = call.event;
    done.failure = failure_of_exception();
    out_->post(frame_of(std::move(done)));
  }
}

void BoardCalls::load(const wire::LoadT& call) {
  const auto compiled = host_.program(
      segments_.bytes_of(call.executable), segments_.bytes_of(call.artifact),
      {.replicas = call.replicas, .partitions = call.partitions, .layouts = call.layouts});
  add(programs_, call.program,
      Program{host_.runtime().load(compiled, call.devices), call.devices,
              compiled->executable->results.size()},
      "program");
}

LaunchRequest BoardCalls::request_of(const wire::LaunchT& call) const {
  LaunchRequest request;
  for (const auto& share : call.shares) {
    check_device(share->device);
    DeviceShare part{share->device, {}};
    for (const uint64_t argument : share->arguments) {
      part.arguments.push_back(array(argument));
    }
    request.shares.push_back(std::move(part));
  }
  request.keep.assign(call.keep.begin(), call.keep.end());
  request.meets = call.meets;
  request.trace_context = call.trace_context;
  if (call.host_calls) {
    request.on_host_call = [waits = host_calls_, launch = call.event](
                               const driver::HostCallInfo& info, size_t partition,
                               std::span<std::byte> bytes) {
      waits->ask(launch, info, partition, bytes);
    };
  }
  return request;
}

void BoardCalls::check_outputs(const wire::LaunchT& call, const Program& program) const {
  std::set<uint64_t> numbers;
  for (const auto& share : call.shares) {
    if (share->outputs.size() != program.results) {
      refuse_call(fmt::format("a launch with {} results, the program has {}", share->outputs.size(),
                              program.results));
    }
    for (const uint64_t number : share->outputs) {
      if (number == 0 || arrays_.contains(number) || !numbers.insert(number).second) {
        refuse_call(fmt::format("a launch makes array {} again", number));
      }
    }
  }
}

// A call that fails must not have launched: what can be wrong with it is looked at first.
void BoardCalls::launch(const wire::LaunchT& call) {
  const LaunchRequest request = request_of(call);
  const Program& launched = program(call.program);
  check_outputs(call, launched);
  const LaunchResult result = launched.loaded->launch(request);
  // The first error of all devices, when all are over.
  struct Ends {
    std::atomic<size_t> left;
    base::Mutex mutex;
    std::shared_ptr<const driver::Error> error TPU_GUARDED_BY(mutex);
  };
  const auto ends = std::make_shared<Ends>();
  ends->left = result.done.size();
  for (size_t s = 0; s < result.outputs.size(); ++s) {
    const std::vector<uint64_t>& numbers = call.shares.at(s)->outputs;
    for (size_t i = 0; i < result.outputs[s].size(); ++i) {
      add_array(numbers.at(i), result.outputs[s][i]);
    }
    result.done.at(s).on_ready(
        [ends, out = out_, number = call.event](const std::shared_ptr<const driver::Error>& error) {
          const base::MutexLock lock(ends->mutex);
          if (ends->error == nullptr) {
            ends->error = error;
          }
          if (ends->left.fetch_sub(1) == 1) {
            wire::EventDoneT done;
            done.event = number;
            done.failure = failure_of(ends->error);
            out->post(frame_of(std::move(done)));
          }
        });
  }
  host_.end_lost(launched.devices);  // behind the launch, so that none comes in between
}

void BoardCalls::refuse(const wire::RefuseT& call) {
  check_devices(call.devices);
  host_.runtime().refuse(call.name, call.members, call.devices, call.meets, error_in(call.failure));
}

void BoardCalls::host_work(bool begins) {
  if (begins) {
    host_work_.push_back(host_.runtime().host_work());
  } else if (!host_work_.empty()) {
    host_work_.pop_back();
  }
}

wire::AnswerT BoardCalls::device_use(const wire::DeviceUseT& call) const {
  check_device(call.device);
  const driver::DeviceInfo info = host_.runtime().device_info(call.device);
  wire::AnswerT made;
  made.numbers = {info.hbm_bytes, info.hbm_used, info.hbm_peak, info.hbm_largest_free,
                  info.hbm_limit};
  return made;
}

}  // namespace tpu::pjrt
