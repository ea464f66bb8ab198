// Where the cores are: chips in a mesh of X times Y, one host. Cores for embeddings there are none.
#include <algorithm>

#include "abi/executor.h"
#include "abi/ops.h"
#include "answer.hpp"
#include "errors.hpp"
#include "system.hpp"

namespace tpu::tensorflow {
namespace {

// The topology and the host have no data of their own.
char topology_tag;
SE_TpuTopology_Core host_tag;

int cores(TpuCoreTypeEnum type, int count) { return type == kTensorCore ? count : 0; }

int all_cores() { return static_cast<int>(places_or_none().cores.size()); }

void give_cores(TpuCoreTypeEnum type, SE_TpuTopology_Core** to) {
  for (int i = 0; i < cores(type, all_cores()); ++i) {
    to[i] = &places_or_none().cores[static_cast<size_t>(i)];
  }
}

void assign(int replicas, int computations, int* assignment) {
  const int64_t wanted = int64_t{replicas} * computations;
  const auto cores = static_cast<int64_t>(places().cores.size());
  if (replicas < 0 || computations < 0 || wanted > cores) {
    pjrt::throw_invalid(std::to_string(replicas) + " replicas of " + std::to_string(computations) +
                        " cores: expected at most " + std::to_string(cores) +
                        " cores together, as many as the board has");
  }
  for (int i = 0; i < static_cast<int>(wanted); ++i) {
    assignment[i] = i;
  }
}

}  // namespace
}  // namespace tpu::tensorflow

using namespace tpu::tensorflow;  // NOLINT: the slots below are all of this file

extern "C" {

const SE_TpuTopology* TpuPlatform_GetTopologyPtr(SE_Platform* /*platform*/) {
  return reinterpret_cast<const SE_TpuTopology*>(&topology_tag);
}

const SE_TpuTopology* TpuUtil_GetTopologyPtr() { return TpuPlatform_GetTopologyPtr(nullptr); }

SE_TpuTopology_Host* TpuPlatform_GetHostLocation(SE_Platform* /*platform*/) { return &host_tag; }

int TpuTopology_LogicalDevicesPerHost(const SE_TpuTopology* /*topology*/, TpuCoreTypeEnum type) {
  return cores(type, all_cores());
}

int TpuTopology_LogicalDevicesPerChip(const SE_TpuTopology* /*topology*/, TpuCoreTypeEnum type) {
  return cores(type, places_or_none().cores_per_chip);
}

int TpuTopology_HostCount(const SE_TpuTopology* /*topology*/) { return 1; }

int TpuTopology_ChipsPerHost(const SE_TpuTopology* /*topology*/) { return places_or_none().chips; }

int TpuTopology_ChipBounds_X(const SE_TpuTopology* /*topology*/) {
  return places_or_none().chips_x;
}

int TpuTopology_ChipBounds_Y(const SE_TpuTopology* /*topology*/) {
  return places_or_none().chips_y;
}

int TpuTopology_ChipBounds_Z(const SE_TpuTopology* /*topology*/) { return 1; }

bool TpuTopology_HasChip(const SE_TpuTopology* /*topology*/, int x, int y, int z) {
  return x >= 0 && x < places_or_none().chips_x && y >= 0 && y < places_or_none().chips_y && z == 0;
}

SE_TpuTopology_Core* TpuTopology_CoreForId(const SE_TpuTopology* /*topology*/, TpuCoreTypeEnum type,
                                           int id) {
  return id >= 0 && id < cores(type, all_cores()) ? &places_or_none().cores[static_cast<size_t>(id)]
                                                  : nullptr;
}

SE_TpuTopology_Core* TpuTopology_Core(const SE_TpuTopology* topology, TpuCoreTypeEnum type, int x,
                                      int y, int z, int index) {
  if (!TpuTopology_HasChip(topology, x, y, z) || index < 0 ||
      index >= places_or_none().cores_per_chip) {
    return nullptr;
  }
  const int chip = y * places_or_none().chips_x + x;
  return TpuTopology_CoreForId(topology, type, chip * places_or_none().cores_per_chip + index);
}

int TpuTopology_NumCores(const SE_TpuTopology* /*topology*/, TpuCoreTypeEnum type) {
  return cores(type, all_cores());
}

void TpuTopology_Cores(const SE_TpuTopology* /*topology*/, TpuCoreTypeEnum type,
                       SE_TpuTopology_Core** to) {
  give_cores(type, to);
}

int TpuTopology_IdForHost(const SE_TpuTopology* /*topology*/, int /*x*/, int /*y*/, int /*z*/) {
  return 0;
}

TpuVersionEnum TpuTopology_Version(const SE_TpuTopology* /*topology*/) { return kTpuV3; }

int TpuTopology_AvailableCoreCount(const XLA_TpuMeshState* /*state*/, TpuCoreTypeEnum type) {
  return cores(type, all_cores());
}

int TpuTopology_AvailableCoresPerChip(TpuCoreTypeEnum type) {
  return cores(type, places_or_none().cores_per_chip);
}

void TpuCoreLocation_ChipCoordinates(SE_TpuTopology_Core* core, int* x, int* y, int* z) {
  *x = core->x;
  *y = core->y;
  *z = 0;
}

void TpuCoreLocation_HostCoordinates(SE_TpuTopology_Core* /*core*/, int* x, int* y, int* z) {
  *x = *y = *z = 0;
}

int TpuCoreLocation_Index(SE_TpuTopology_Core* core) { return core->index; }

int TpuCoreLocation_Id(SE_TpuTopology_Core* core) { return core->id; }

int TpuHostLocation_Id(SE_TpuTopology_Host* /*host*/) { return 0; }

int TpuHostLocation_NumCores(SE_TpuTopology_Host* /*host*/, TpuCoreTypeEnum type) {
  return cores(type, all_cores());
}

void TpuHostLocation_Cores(SE_TpuTopology_Host* /*host*/, TpuCoreTypeEnum type,
                           SE_TpuTopology_Core** to) {
  give_cores(type, to);
}

// Placers have no data.
XLA_ComputationPlacer* TpuComputationPlacer_New() {
  return reinterpret_cast<XLA_ComputationPlacer*>(&topology_tag);
}

void TpuComputationPlacer_Free(XLA_ComputationPlacer* /*placer*/) {}

void TpuComputationPlacer_AssignDevices(XLA_ComputationPlacer* /*placer*/, int replicas,
                                        int computations, int* assignment, TF_Status* status) {
  answer(__func__, status, [&] { assign(replicas, computations, assignment); });
}

void TpuComputationPlacer_AssignLocalDevices(SE_TpuTopology_Host* /*host*/, int replicas,
                                             int computations, int* assignment, TF_Status* status) {
  answer(__func__, status, [&] { assign(replicas, computations, assignment); });
}

}  // extern "C"
