// What one debugger has asked for: packets of GDB's remote protocol to actions on the harts, and
// replies. Harts are threads, core 0 is thread 1; all of them stop and go together. Breakpoints and
// watches hold for all harts. No sockets and no SystemC: gdb_stub.hpp joins it with both.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "debug/debug_target.hpp"
#include "hart/hart_debugger.hpp"

namespace tpu::model {

class GdbSession {
 public:
  struct Answer {
    std::string reply{};    // empty: "not known here", as the protocol has it
    bool silent = false;    // no reply now: a stop will be one, or nobody listens any more
    bool resume = false;    // the harts go on as leave() says
    bool over = false;      // the debugger takes its leave
    bool acks_end = false;  // behind the reply
  };

  // The target outlives the session.
  explicit GdbSession(DebugTarget& target);

  // While everything stands. What cannot be read is answered with an error.
  Answer handle(std::string_view packet);

  // The debugger is gone: its breakpoints and watches too, and every hart runs.
  void end();

  HartLeave leave(uint32_t core) const { return leaves_[core]; }
  // A hart stands, or (interrupted) all do by the debugger's wish: the packet that says so.
  std::string stopped(uint32_t core, HartStop why);
  std::string interrupted();

 private:
  // Of a Z packet.
  struct Point {
    char kind;  // '0' to '4'
    uint32_t address;
    uint32_t size;
    auto operator<=>(const Point&) const = default;
  };

  Answer handle_query(std::string_view packet);
  std::string read_document(std::string_view request);
  std::string threads_xml() const;
  std::string thread_list() const;
  std::string select_thread(std::string_view packet);
  std::optional<uint32_t> core_of(std::string_view thread) const;

  std::string read_registers() const;
  std::string write_registers(std::string_view digits);
  std::string read_register(std::string_view text) const;
  std::string write_register(std::string_view text);
  bool put_register(uint32_t number, uint32_t value);
  std::string read_memory(std::string_view text);
  std::string write_memory(std::string_view text, bool binary);

  std::string change_point(std::string_view packet);
  void put_point(const Point& point);
  void take_point(const Point& point);
  Answer go_on(std::string_view packet);
  Answer go_on_by_thread(std::string_view actions);

  DebugTarget& target_;
  std::vector<HartLeave> leaves_;
  std::set<Point> points_;
  uint32_t core_ = 0;  // registers and memory are of this one
  std::string last_stop_;
};

}  // namespace tpu::model
