// A chip as a PCI function of vfio-user: its connection to a client, one at a time. A frame that
// asks for what cannot be gets an error reply; one that no client of the protocol sends ends the
// connection. Either writes a line that says what was wrong.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "socket/descriptor.hpp"
#include "transport/vfio/chip_regions.hpp"
#include "transport/vfio/client_memory.hpp"
#include "transport/vfio/frame_queue.hpp"
#include "transport/vfio/frame_socket.hpp"
#include "transport/vfio/interrupt_vectors.hpp"

namespace tpu::driver::vfio {

class PciFunction {
 public:
  /// `line` takes what goes wrong, for people.
  PciFunction(FunctionBoard& board, int chip, PciId id,
              std::function<void(const std::string&)> line);
  PciFunction(const PciFunction&) = delete;
  PciFunction& operator=(const PciFunction&) = delete;
  ~PciFunction();

  /// What the chip sees of the client's memory.
  ClientMemory& memory() { return memory_; }

  /// There is no other client.
  void connect(base::Descriptor socket);
  bool connected() const { return socket_ != nullptr; }
  int socket() const { return socket_->number(); }
  /// Something is there that came while the chip waited for its client: frames, or the end.
  bool has_rest() const { return !rest_.empty() || broken_; }
  /// Handles frames that are there, as many as go in one turn. Ends the connection where it must.
  void serve();
  void handle(Frame frame);
  /// Interrupts, a bit for each vector.
  void raise(uint32_t vectors);
  /// The board is lost: the client is told by the interrupt for errors.
  void raise_error() { vectors_.raise_error(); }

 private:
  using Bytes = std::span<const std::byte>;

  void disconnect();
  void tell(const std::string& text);
  void answer(Frame& frame);
  std::vector<std::byte> perform(Frame& frame);
  std::vector<std::byte> agree(Bytes payload);
  void map(Frame& frame);
  std::vector<std::byte> unmap(Bytes payload);
  void check_whole() const;
  uint16_t new_id();
  bool is_late(const Frame& frame);
  std::optional<Frame> await_reply(const Head& head);
  bool ask(Command command, const DmaAccess& access, Bytes data, std::span<std::byte> to);
  bool far_read(uint64_t address, std::span<std::byte> to);
  bool far_write(uint64_t address, Bytes from);

  FunctionBoard& board_;
  const std::function<void(const std::string&)> line_;
  ChipRegions regions_;
  InterruptVectors vectors_;
  ClientMemory memory_;
  std::unique_ptr<FrameSocket> socket_;   // null: no client
  bool agreed_ = false;                   // on the version
  int lines_ = 0;                         // told of this connection
  uint32_t peer_bytes_ = kMostDataBytes;  // that the client takes at a time
  uint16_t next_id_ = 0;                  // of a command of ours
  FrameQueue rest_;
  std::optional<std::string> broken_;  // why the connection has ended, while the chip waited
  bool silent_ = false;                // a reply has not come, and no frame since
  std::deque<uint16_t> late_;          // ids of commands whose replies came too late, or never
};

}  // namespace tpu::driver::vfio
