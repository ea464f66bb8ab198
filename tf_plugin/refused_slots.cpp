// Functions of the interface that the board does not support: each answers with its name. A table,
// from which the functions are made.
#include <string>

#include "abi/executor.h"
#include "abi/ops.h"
#include "answer.hpp"
#include "errors.hpp"

namespace tpu::tensorflow {
namespace {

void refuse(const char* name, TF_Status* status) {
  answer(name, status, [&] { pjrt::throw_unimplemented(std::string(name) + " is not supported"); });
}

}  // namespace

// The structs of arguments of the functions below, of which nobody reads another member: the
// status is behind `words` words of eight bytes.
template <size_t words>
struct Params {
  uint64_t before[words];
  TF_Status* status;
};

// absl::StatusOr<int>, which is returned by a hidden pointer: a good status has the bits 1.
struct StatusOrInt {
  uint64_t status = 1;
  int value = 0;
  StatusOrInt() = default;
  StatusOrInt(const StatusOrInt&) = delete;
  ~StatusOrInt() {}  // NOLINT: not trivial, as that of absl
};

}  // namespace tpu::tensorflow

using namespace tpu::tensorflow;  // NOLINT: the functions below are all of this file

// A function that returns nothing, with the status among its arguments, or none.
#define TPU_TF_REFUSED(name, parameters, status) \
  void name parameters { refuse(#name, status); }
// A function with a struct of arguments.
#define TPU_TF_REFUSED_STRUCT(name, words) \
  void name(Params<words>* params) { refuse(#name, params->status); }

#pragma GCC visibility push(default)
extern "C" {

TPU_TF_REFUSED(TpuExecutor_EnqueueInfeed,
               (SE_StreamExecutor*, int32_t, const uint8_t*, int64_t, TF_Status* s), s)
TPU_TF_REFUSED(TpuExecutor_DequeueOutfeed,
               (SE_StreamExecutor*, int32_t, uint8_t*, int64_t, TF_Status* s), s)
TPU_TF_REFUSED(TpuExecutor_EnqueueCompactionOnStreamForHbm,
               (SE_StreamExecutor*, SE_Stream*, TF_Status* s), s)

TPU_TF_REFUSED(TpuCompiler_Compile,
               (Tpu_Compiler*, XLA_HloModuleGroup*, SE_StreamExecutorList*, int,
                SE_DeviceMemoryAllocator*, SE_Executable**, TF_Status* s),
               s)
TPU_TF_REFUSED(TpuExecutableSerialize_WriteToArray,
               (SE_ExecutableSerializationHandle*, int, uint8_t*, TF_Status* s), s)
TPU_TF_REFUSED(TpuExecutableSerialize_FreeHandle, (SE_ExecutableSerializationHandle*), nullptr)
TPU_TF_REFUSED(TpuProgram_SerializeTpuExecutable,
               (const XLA_TpuProgram*, TpuExecutableSerializedProto*, TF_Status* s), s)
TPU_TF_REFUSED(TpuProgram_SerializeCompilerMetadata,
               (const XLA_TpuProgram*, CompilerMetadataSerializedProto*, TF_Status* s), s)
TPU_TF_REFUSED(TpuProgram_DeserializeFromGetTpuProgramResponseProto,
               (TpuSerializedProto, XLA_TpuProgram*, TF_Status* s), s)

TPU_TF_REFUSED_STRUCT(TpuExecute_RuntimeInputToPaddedData, 8)
TPU_TF_REFUSED_STRUCT(TpuEmbeddingEngine_DedupDataSizeComputation, 11)
TPU_TF_REFUSED_STRUCT(TpuEmbeddingEngine_DedupDataTupleMaskComputation, 11)
TPU_TF_REFUSED_STRUCT(SparseCore_GetMaxIdsAndUniques, 6)

// Those that give something.

void TpuExecutable_Serialize(SE_Executable* /*executable*/,
                             SE_ExecutableSerializationHandle** handle, TF_Status* status) {
  *handle = nullptr;
  refuse(__func__, status);
}

size_t TpuExecutableSerialize_GetByteSize(SE_ExecutableSerializationHandle* /*handle*/) {
  refuse(__func__, nullptr);
  return 0;
}

void TpuExecutable_Deserialize(int /*size*/, const uint8_t* /*bytes*/, SE_Executable** executable,
                               TF_Status* status) {
  *executable = nullptr;
  refuse(__func__, status);
}

XLA_HloModule TpuExecutable_HloModule(SE_Executable* /*executable*/) {
  refuse(__func__, nullptr);
  return {};
}

// Chips of TPU v3 have no SparseCore.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wreturn-type-c-linkage"  // as the interface has it
#endif
StatusOrInt TpuTopology_MaybeAvailableSparseCoresPerLogicalDevice(TpuCoreTypeEnum /*type*/) {
  return {};
}

}  // extern "C"
#pragma GCC visibility pop
