// GDB's stub of the board (--gdb): joins the connection, what the debugger asks for, and the harts.
// All packets are handled in the kernel thread: either simulated time stands and the debugger
// rules, or it passes and the debugger waits. docs/firmware.md, "GDB on the firmware".
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "debug/gdb_link.hpp"
#include "debug/gdb_session.hpp"
#include "hart/hart_debugger.hpp"

namespace tpu::model {

class GdbStub : public HartDebugger {
 public:
  // With `wait` everything stands until a debugger lets it go on. The link outlives the stub.
  GdbStub(GdbLink& link, bool wait) : link_(link), stands_(wait) {}
  ~GdbStub() override;

  // Once, when the board is built: harts run or stand from here on.
  void attach(DebugTarget& target) { session_.emplace(target); }

  // Kernel thread, between two events or with the board at rest: takes what has come from the
  // debugger, and comes back when the harts may run.
  void serve();

  HartLeave leave(uint32_t core) const override { return session_->leave(core); }
  void hart_stands(uint32_t core, HartStop why) override;

 private:
  void take(const GdbEvent& event);
  void take_packet(const std::string& packet);

  GdbLink& link_;
  std::optional<GdbSession> session_;
  bool stands_;
  bool connected_ = false;
};

}  // namespace tpu::model
