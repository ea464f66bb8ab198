// Who rules: the debugger, or simulated time.
#include "debug/gdb_stub.hpp"

namespace tpu::model {

GdbStub::~GdbStub() {
  if (connected_) {
    link_.send("W00");  // the board is closed
  }
}

void GdbStub::serve() {
  for (;;) {
    if (stands_) {
      take(link_.wait());
    } else if (const auto event = link_.poll()) {
      take(*event);
    } else {
      return;
    }
  }
}

void GdbStub::hart_stands(uint32_t core, HartStop why) {
  if (!connected_) {
    return;  // a hart that died
  }
  stands_ = true;
  link_.send(session_->stopped(core, why));
  serve();
}

void GdbStub::take(const GdbEvent& event) {
  switch (event.kind) {
    case GdbEvent::Kind::kConnected:
      connected_ = stands_ = true;
      break;
    case GdbEvent::Kind::kInterrupt:
      if (connected_ && !stands_) {
        stands_ = true;
        link_.send(session_->interrupted());
      }
      break;
    case GdbEvent::Kind::kPacket:
      if (connected_ && stands_) {  // GDB sends none while the harts run
        take_packet(event.packet);
      }
      break;
    case GdbEvent::Kind::kGone:
      session_->end();
      connected_ = stands_ = false;
      break;
  }
}

void GdbStub::take_packet(const std::string& packet) {
  const GdbSession::Answer answer = session_->handle(packet);
  if (answer.over) {
    session_->end();
    connected_ = false;
  }
  if (answer.resume) {
    stands_ = false;
  }
  if (answer.acks_end) {
    link_.end_acks();
  }
  if (!answer.silent) {
    link_.send(answer.reply);
  }
}

}  // namespace tpu::model
