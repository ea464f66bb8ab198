// A session of a worker: one driver, one board, one process.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "socket/descriptor.hpp"
#include "socket/pipe.hpp"
#include "tpu/worker.hpp"
#include "transport/worker/token.hpp"

namespace tpu::driver::worker {

/// What the process that listens and a session tell each other, over a pair of sockets.
enum class Note : uint8_t {
  kWant,       ///< of the session: its driver is who it should be, and wants a board
  kGiven,      ///< a board
  kTaken,      ///< others have all of them; the text says who
  kDone,       ///< of the session: its board is not in use any more
  kConnected,  ///< another connection of the driver, with a descriptor
};
struct NoteFrame {
  static constexpr size_t kTextBytes = 400;
  Note note = Note::kWant;
  bool waits = false;  ///< of kWant: until a board is free
  uint64_t session = 0;
  uint64_t chips = 0;          ///< of kWant: a bit for each (spec::ChipSet)
  char text[kTextBytes] = {};  ///< who wants, who has
};
bool send_note(int socket, const NoteFrame& note, int descriptor = -1);
/// Nothing: the other end is gone.
std::optional<NoteFrame> receive_note(int socket, base::Descriptor* descriptor = nullptr);

/// In a process of its own, until the driver is gone. `connection` begins behind its preamble;
/// `again`: of a session that is not known. `wires`: to other workers, if they are there already.
/// Returns the exit code.
int run_session(const ServeOptions& options, base::Descriptor connection, bool tls,
                base::Descriptor notes, uint64_t session, bool again,
                std::vector<std::shared_ptr<base::Pipe>> wires = {});

}  // namespace tpu::driver::worker
