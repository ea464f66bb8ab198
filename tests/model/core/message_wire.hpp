// A core as another process would see it: every write, signal and question is a message of bytes in
// a queue, served on the far side, and so is the answer. Nothing else passes: no memory is shown.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "kernel/remote_if.hpp"

namespace tpu::model::test {

class MessageWire : public RemoteIf {
 public:
  explicit MessageWire(RemoteIf& target) : target_(target) {}

  RemoteAnswer remote_open(const RemoteWrite& write, RemotePlace* /*place*/) override {
    return call<RemoteAnswer>(Kind::kOpen, write, {});
  }
  void remote_landed(const RemoteWrite& write, std::span<const uint8_t> data) override {
    payload_ += data.size();
    call<uint8_t>(Kind::kLanded, write, data);
  }
  RemoteAnswer remote_signal(const RemoteSignal& signal) override {
    return call<RemoteAnswer>(Kind::kSignal, signal, {});
  }
  uint64_t work_done() const override { return call<uint64_t>(Kind::kWorkDone, uint8_t{}, {}); }
  bool work_in_flight() const override {
    return call<uint8_t>(Kind::kInFlight, uint8_t{}, {}) != 0;
  }

  uint64_t payload() const { return payload_; }  // bytes of writes

 private:
  using Message = std::vector<uint8_t>;
  enum class Kind : uint8_t { kOpen, kLanded, kSignal, kWorkDone, kInFlight };

  template <typename T>
  static void put(Message& message, const T& value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    message.insert(message.end(), bytes, bytes + sizeof value);
  }
  template <typename T>
  static T get(std::span<const uint8_t>& message) {
    T value;
    std::memcpy(&value, message.data(), sizeof value);
    message = message.subspan(sizeof value);
    return value;
  }

  // The near side: a request into the queue, its answer out of the other one.
  template <typename Answer, typename Body>
  Answer call(Kind kind, const Body& body, std::span<const uint8_t> data) const {
    Message request{static_cast<uint8_t>(kind)};
    put(request, body);
    request.insert(request.end(), data.begin(), data.end());
    there_.push_back(std::move(request));
    serve();
    const Message answer = std::move(back_.front());
    back_.pop_front();
    std::span<const uint8_t> rest = answer;
    return get<Answer>(rest);
  }

  // The far side.
  void serve() const {
    const Message request = std::move(there_.front());
    there_.pop_front();
    std::span<const uint8_t> rest = request;
    Message answer;
    RemotePlace hidden;
    switch (get<Kind>(rest)) {
      case Kind::kOpen:
        put(answer, target_.remote_open(get<RemoteWrite>(rest), &hidden));
        break;
      case Kind::kLanded: {
        const auto write = get<RemoteWrite>(rest);
        target_.remote_landed(write, rest);
        put(answer, uint8_t{});
        break;
      }
      case Kind::kSignal:
        put(answer, target_.remote_signal(get<RemoteSignal>(rest)));
        break;
      case Kind::kWorkDone:
        put(answer, target_.work_done());
        break;
      case Kind::kInFlight:
        put(answer, static_cast<uint8_t>(target_.work_in_flight()));
        break;
    }
    back_.push_back(std::move(answer));
  }

  RemoteIf& target_;
  mutable std::deque<Message> there_, back_;
  uint64_t payload_ = 0;
};

}  // namespace tpu::model::test
