// What the variables of a real machine say: of its TPUs, and of the launchers OpenMPI, Slurm and
// MPICH.
#pragma once

#include "processes/owners.hpp"

namespace tpu::pjrt {

inline constexpr const char* kProcessBounds = "TPU_PROCESS_BOUNDS";
inline constexpr const char* kChipBounds = "TPU_CHIPS_PER_PROCESS_BOUNDS";
inline constexpr const char* kVisibleChips = "TPU_VISIBLE_CHIPS";
inline constexpr const char* kAddresses = "TPU_PROCESS_ADDRESSES";
inline constexpr const char* kHostNames = "TPU_WORKER_HOSTNAMES";
inline constexpr const char* kPort = "TPU_PROCESS_PORT";

/// One of several processes, by whoever says so.
struct ProcessNumber {
  int process = 0;
  int processes = 1;
  std::string source;  ///< "TPU_PROCESS_BOUNDS"
};

/// Of its TPUs. Nothing where they say one process, or nothing. Throws driver::Error
/// (InvalidArgument) for values that contradict each other or the board, with both of them.
std::optional<ProcessNumber> number_of_tpus(const Variable& variable,
                                            const spec::BoardParams& board);

/// Of the launcher; it may be that of tasks that have nothing to do with each other.
std::optional<ProcessNumber> number_of_launcher(const Variable& variable);

/// The process that a launcher of as many processes as `processes` says; -1: none does.
int number_by_launcher(const Variable& variable, int processes, const std::string& source);

}  // namespace tpu::pjrt
