// Loader: brings programs to their cores and back there when they had to make room, and knows which
// are there. Guarded by the board lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/lock/board_lock.hpp"
#include "src/operations/send_order.hpp"
#include "src/residency/program_ids.hpp"
#include "src/residency/resident_programs.hpp"
#include "src/transfers/transfers.hpp"

namespace tpu::driver {

class Loader {
 public:
  /// `pump` lets simulated time pass until something is over.
  Loader(Devices& devices, Operations& operations, SendOrder& order, BoardMemory& memory,
         Transfers& transfers, Health& health, std::function<void()> pump)
      : devices_(devices),
        operations_(operations),
        order_(order),
        memory_(memory),
        transfers_(transfers),
        health_(health),
        pump_(std::move(pump)) {}

  /// The board that programs must have been compiled for, and what of it the user has set. Its
  /// devices are there.
  void set_board(const std::string& name, uint64_t hash, const std::vector<std::string>& overrides)
      TPU_REQUIRES(board_lock);

  /// Throws InvalidArgument for a program that cannot run on these devices (by partition; empty: as
  /// compiled). `file`: of the program; empty: not known. Needs no lock.
  std::shared_ptr<LoadedProgram> make(std::shared_ptr<const exe::ExecutableT> executable,
                                      const std::string& file, const std::vector<int>& devices);
  /// Loads it; `wait`: until it is there.
  void load(const std::shared_ptr<LoadedProgram>& program, bool wait) TPU_REQUIRES(board_lock);
  /// The program on its cores, for as long as the caller holds the result. What was used longest
  /// ago makes room. Memory and ids of a load that fails come back with its residence.
  std::shared_ptr<Residence> make_resident(LoadedProgram& program) TPU_REQUIRES(board_lock);
  /// Takes the program that was used longest ago off a core. False: there is none.
  bool evict(int device) TPU_REQUIRES(board_lock) { return programs_.evict(device); }
  /// Cores whose harts were started again get the programs that they had; their memory has
  /// survived, with all constants in it.
  void load_again(const std::vector<int>& devices) TPU_REQUIRES(board_lock);

  /// The cores of a program, in the order of its partitions: those that were asked for, when it can
  /// run there.
  std::vector<int> place_of(const exe::ExecutableT& exe, const std::string& name,
                            const std::vector<int>& wanted);
  uint64_t board_hash() const TPU_REQUIRES(board_lock) { return board_hash_; }
  const std::shared_ptr<ProgramIds>& ids() const TPU_REQUIRES(board_lock) { return ids_; }
  /// Of a snapshot: a program that is on its cores already.
  void add(const std::shared_ptr<LoadedProgram>& program) TPU_REQUIRES(board_lock) {
    programs_.add(program);
  }

  void visit_state(spec::Archive& archive) { archive(programs_); }

 private:
  /// What to do about a program of another board.
  std::string advice_for(const std::string& program_board) const;
  void collect_retired() TPU_REQUIRES(board_lock);
  void await_load(const Residence& residence) TPU_REQUIRES(board_lock);
  void take_memory(const LoadedProgram& program, Residence& residence) TPU_REQUIRES(board_lock);
  void take_ids(Residence& residence) TPU_REQUIRES(board_lock);
  std::shared_ptr<StagingRange> staged_image(const exe::ExecutableT& exe) TPU_REQUIRES(board_lock);
  void send_program(const LoadedProgram& program, Residence::Part& part,
                    const std::shared_ptr<StagingRange>& image,
                    const std::shared_ptr<Operation>& op) TPU_REQUIRES(board_lock);
  void send_constants(const LoadedProgram& program, const Residence::Part& part,
                      const std::shared_ptr<Operation>& op) TPU_REQUIRES(board_lock);

  Devices& devices_;
  Operations& operations_;
  SendOrder& order_;
  BoardMemory& memory_;
  Transfers& transfers_;
  Health& health_;
  const std::function<void()> pump_;
  std::string board_name_;
  uint64_t board_hash_ = 0;
  std::vector<std::string> overrides_;  // for errors
  ResidentPrograms programs_;
  std::shared_ptr<ProgramIds> ids_;  // residences give theirs back
};

}  // namespace tpu::driver
