// Heads, checksums and buffers of frames.
#include "wire/pod_stream.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "file/crc32c.hpp"

namespace tpu::model {
namespace {

using Head = tpu_pod_wire_head_t;
constexpr size_t kRead = size_t{64} << 10;     // bytes that are asked for at a time
constexpr size_t kMostSent = size_t{1} << 20;  // bytes that stay in a buffer after they were sent
constexpr std::chrono::milliseconds kLostNap{1};  // between two tries to send last words

uint32_t crc_of(const Head& head) {
  static_assert(offsetof(Head, head_crc) + sizeof head.head_crc == sizeof head);
  return spec::crc32c(std::as_bytes(std::span(&head, 1)).first(offsetof(Head, head_crc)));
}

// What is wrong with it; null: nothing.
const char* damage_of(const Head& head) {
  if (head.magic != TPU_POD_WIRE_MAGIC || head.version != TPU_POD_WIRE_VERSION) {
    return "it does not begin as a frame of this version of tpuboard";
  }
  if (head.head_crc != crc_of(head)) {
    return "its head was damaged";
  }
  return head.bytes > TPU_POD_WIRE_MOST_BODY ? "it is too long" : nullptr;
}

}  // namespace

PodStream::PodStream(std::unique_ptr<Wire> wire)
    : wire_(std::move(wire)), out_(wire_->ranks()), in_(wire_->ranks()) {}

void PodStream::post(uint32_t to, const PodFrame& frame) {
  Out& out = out_[to];
  Head head{};
  head.magic = TPU_POD_WIRE_MAGIC;
  head.version = TPU_POD_WIRE_VERSION;
  head.kind = frame.kind;
  head.bytes = static_cast<uint32_t>(frame.body.size());
  head.sequence = out.sequence++;
  head.at = frame.at;
  head.board = frame.board;
  head.core = frame.core;
  head.number = frame.number;
  head.to = frame.to;
  head.from_rank = rank();
  head.crc = spec::crc32c(frame.body);
  head.head_crc = crc_of(head);
  const auto bytes = std::as_bytes(std::span(&head, 1));
  out.bytes.insert(out.bytes.end(), bytes.begin(), bytes.end());
  out.bytes.insert(out.bytes.end(), frame.body.begin(), frame.body.end());
  ++frames_sent_;
}

void PodStream::send_rest(uint32_t to) {
  Out& out = out_[to];
  while (out.sent < out.bytes.size()) {
    const size_t sent = wire_->send(to, std::span(out.bytes).subspan(out.sent));
    if (sent == 0) {
      break;
    }
    out.sent += sent;
  }
  if (out.sent == out.bytes.size()) {
    out.bytes.clear();
    out.sent = 0;
  } else if (out.sent > kMostSent) {
    out.bytes.erase(out.bytes.begin(), out.bytes.begin() + static_cast<ptrdiff_t>(out.sent));
    out.sent = 0;
  }
}

bool PodStream::flush() {
  for (uint32_t to = 0; to < ranks(); ++to) {
    send_rest(to);
  }
  return std::ranges::all_of(out_, [](const Out& out) { return out.bytes.empty(); });
}

void PodStream::send_lost(const std::string& text, std::chrono::milliseconds limit) {
  PodFrame frame;
  frame.kind = TPU_POD_WIRE_LOST;
  const auto bytes =
      std::as_bytes(std::span(text)).first(std::min<size_t>(text.size(), TPU_POD_WIRE_MOST_BODY));
  frame.body.assign(bytes.begin(), bytes.end());
  for (uint32_t to = 0; to < ranks(); ++to) {
    if (to != rank()) {
      post(to, frame);
    }
  }
  // Who does not hear it, since the way there is gone, notices that.
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    bool all = true;
    for (uint32_t to = 0; to < ranks(); ++to) {
      try {
        send_rest(to);
      } catch (const PodLost&) {
        out_[to] = {};
      }
      all = all && out_[to].bytes.empty();
    }
    if (all || std::chrono::steady_clock::now() >= end) {
      break;
    }
    std::this_thread::sleep_for(kLostNap);
  }
  wire_->end();
}

PodStream::Lost PodStream::find_lost() {
  Lost lost;
  for (uint32_t from = 0; from < ranks(); ++from) {
    if (from == rank()) {
      continue;
    }
    In& in = in_[from];
    try {
      while (read_more(from, in)) {
      }
    } catch (const PodLost& error) {
      lost.ended = error.what();  // what has come is still there
    }
    Head head{};
    for (size_t at = in.used; in.filled - at >= sizeof head;) {
      std::memcpy(&head, in.bytes.data() + at, sizeof head);
      const size_t left = in.filled - at - sizeof head;
      if (damage_of(head) != nullptr || head.bytes > left) {
        break;
      }
      const auto body = std::span(in.bytes).subspan(at + sizeof head, head.bytes);
      if (head.kind == TPU_POD_WIRE_LOST && head.crc == spec::crc32c(body)) {
        lost.told = {reinterpret_cast<const char*>(body.data()), body.size()};
        return lost;
      }
      at += sizeof head + head.bytes;
    }
  }
  return lost;
}

bool PodStream::read_more(uint32_t from, In& in) {
  if (in.used != 0) {
    std::memmove(in.bytes.data(), in.bytes.data() + in.used, in.filled - in.used);
    in.filled -= in.used;
    in.used = 0;
  }
  if (in.bytes.size() < in.filled + kRead) {
    in.bytes.resize(in.filled + kRead);
  }
  const size_t got = wire_->receive(from, std::span(in.bytes).subspan(in.filled));
  in.filled += got;
  return got != 0;
}

void PodStream::refuse(uint32_t from, const In& in, const char* why) const {
  throw PodLost("frame " + std::to_string(in.sequence) + " of rank " + std::to_string(from) +
                " of " + std::to_string(ranks()) + ": " + why);
}

bool PodStream::next(uint32_t from, PodFrame& frame) {
  if (from == rank()) {
    return false;
  }
  In& in = in_[from];
  Head head{};
  for (;;) {
    const size_t there = in.filled - in.used;
    if (there >= sizeof head) {
      std::memcpy(&head, in.bytes.data() + in.used, sizeof head);
      // At once: so many bytes as a wrong length says may never come.
      if (const char* const damage = damage_of(head)) {
        refuse(from, in, damage);
      }
      if (there >= sizeof head + head.bytes) {
        break;
      }
    }
    if (!read_more(from, in)) {
      return false;
    }
  }
  const std::span<const std::byte> body =
      std::span(in.bytes).subspan(in.used + sizeof head, head.bytes);
  if (head.crc != spec::crc32c(body)) {
    refuse(from, in, "its body was damaged");
  }
  if (head.sequence != in.sequence || head.from_rank != from) {
    refuse(from, in, "another one was expected");
  }
  ++in.sequence;
  in.used += sizeof head + head.bytes;
  frame = {
      head.kind, head.at, head.board, head.core, head.number, head.to, {body.begin(), body.end()}};
  return true;
}

}  // namespace tpu::model
