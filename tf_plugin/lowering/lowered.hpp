// Between the plugin and the library that lowers graphs of TensorFlow to HLO modules: that library
// is built against one version of TensorFlow, and loaded into a process that has it. Both are built
// together, so that the structure is plain C++; a hash of this file, TPU_LOWERING_INTERFACE, is in
// both, and a library of another build is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

struct SE_OutsideCompilationParams;

namespace tpu::tensorflow {

/// A result whose sizes are known at run time only: an array of the bounds, and behind all results
/// that TensorFlow knows of, the size of each of its dimensions as an s32.
struct DynamicResult {
  size_t result = 0, first_size = 0, rank = 0;
};

/// An array that travels between a program and the host while it runs.
struct HostTransfer {
  int64_t channel = 0;  ///< of the program
  std::string name;     ///< of the channel, a part of the key of the rendezvous
  bool to_host = true;
  int type = 0;  ///< DataType of TensorFlow
  std::vector<int64_t> dims;
  /// An array of an infeed or an outfeed, which are lists of arrays; the others meet operations of
  /// the step.
  bool feed = false;
  size_t part = 0, parts = 1;
};

/// What a call of the library below came to.
struct Outcome {
  int error_code = 0;  ///< of absl::StatusCode; 0: it is done
  std::string error;
};

/// Whom the transfers of a launch on one core meet. Calls may come from any thread.
class HostSide {
 public:
  HostSide() = default;
  HostSide(const HostSide&) = delete;
  HostSide& operator=(const HostSide&) = delete;
  virtual ~HostSide() = default;
  virtual Outcome send(const HostTransfer& transfer, const void* bytes, size_t size) = 0;
  /// Waits until the host has computed the array, or the step has failed.
  virtual Outcome receive(const HostTransfer& transfer, void* bytes, size_t size) = 0;
  /// The launch has failed: nobody waits for it any more.
  virtual void abort(int code, const std::string& text) = 0;
  /// No other step has a rendezvous at the same address while this lives.
  virtual bool keeps_rendezvous() const = 0;
};

/// What one core of a replica is given and gives, where the cores have different arrays.
struct CoreInterface {
  std::string executable_info;  ///< as Lowered::executable_info
  /// By argument and result of the program: its place on this core; -1: it is on another one.
  std::vector<int> arguments, results;
};

struct Lowered {
  std::string hlo;  // HloModuleProto; the arguments are one tuple, and the seed if it is seeded
  std::string executable_info;  // TPUExecutableInfoProto
  std::string metadata;         // HloProto
  int replicas = 1, cores_per_replica = 1;
  std::vector<int> devices;  // those of the first replica, then those of the next; empty: not said
  std::vector<CoreInterface> cores;  // of a replica; empty: each has all arrays, or a part of each
  bool modifies_variables = false;
  std::vector<DynamicResult> dynamic_results;
  std::vector<HostTransfer> host_transfers;
  bool seeded = false;  // the last argument is the seed of the launch, a u32
  // Arrays that pass between the program and the tables of embeddings. Arguments, behind those of
  // TensorFlow and in front of the seed: the vectors of each feature. The last results: the
  // gradient of each feature, then the learning rates.
  size_t embedding_arguments = 0, embedding_results = 0;

  int error_code = 0;  // of absl::StatusCode; with an error the rest is empty
  std::string error;
};

// `request`: a TpuCompilationRequestProto. Throws nothing.
using LowerFunction = void(const char* request, size_t size, Lowered& lowered);
inline constexpr char kLowerFunction[] = "tpuboard_tf_lower";

// Makes the random numbers of an HLO module (HloModuleProto) functions of a seed: Lowered::hlo and
// seeded. Throws nothing.
using SeedFunction = void(const char* module, size_t size, Lowered& lowered);
inline constexpr char kSeedFunction[] = "tpuboard_tf_seed";

// The host of a launch. `params` are not needed after the call. Throws nothing but bad_alloc.
using HostSideFunction = void(const SE_OutsideCompilationParams& params,
                              std::shared_ptr<HostSide>& made);
inline constexpr char kHostSideFunction[] = "tpuboard_tf_host_side";

/// A table of embeddings: arrays of f32 with `rows` and `width`.
struct EmbeddingTable {
  std::string name;
  int64_t rows = 0, width = 0;
  size_t arrays = 1;  ///< the parameters, and what the optimizer keeps
};
/// What looks up rows of a table: for each of its samples, on each core, one vector.
struct EmbeddingFeature {
  std::string name;
  size_t table = 0;
  std::vector<int64_t> dims;  ///< of the samples
  int64_t samples() const {
    int64_t count = 1;
    for (const int64_t dim : dims) {
      count *= dim;
    }
    return count;
  }
};
struct Embeddings {
  std::string config;  ///< TPUEmbeddingConfiguration
  int cores = 0;
  std::vector<EmbeddingTable> tables;
  std::vector<EmbeddingFeature> features;
  size_t rates = 0;  ///< learning rates that come with the gradients of each step

  /// Of a table on each core: row i is on core i / rows_by_core().
  int64_t rows_by_core(size_t table) const { return (tables[table].rows + cores - 1) / cores; }
};
using EmbeddingsFunction = void(const char* config, size_t size, Embeddings& read,
                                Outcome& outcome);
inline constexpr char kEmbeddingsFunction[] = "tpuboard_tf_embeddings";

/// The ids of a feature on each core. `combined`: an id has the number of its sample and a weight;
/// else there is one id for each sample, in order. Ids of no row, such as -1, count for nothing.
struct EmbeddingIds {
  int64_t count = 0;
  bool combined = false;
  bool operator<(const EmbeddingIds& other) const {
    return std::tie(count, combined) < std::tie(other.count, other.combined);
  }
};
/// A program of all cores. Arguments of a lookup: the parameters of each table; of each feature s32
/// ids, and, if combined, s32 samples and f32 weights. Results: the vectors of each feature.
/// Arguments of an update: all arrays of each table; of each feature the same, and the gradient of
/// the vectors; f32 learning rates. Results, in the same memory: all arrays of each table.
using EmbeddingProgramFunction = void(const Embeddings& embeddings, bool update,
                                      const std::vector<EmbeddingIds>& ids, Lowered& lowered);
inline constexpr char kEmbeddingProgramFunction[] = "tpuboard_tf_embedding_program";

/// Computations that TensorFlow's operations call in a step (HloModuleProto): tpuboard_tf_lower()
/// finds them by the names of their custom calls.
enum class EmbeddingCall { kDeduplicate, kReceive, kSend };
inline constexpr char kEmbeddingsReceived[] = "tpuboard.embeddings_received";
inline constexpr char kEmbeddingsSent[] = "tpuboard.embeddings_sent";
using EmbeddingCallFunction = void(const Embeddings& embeddings, EmbeddingCall call,
                                   Lowered& lowered);
inline constexpr char kEmbeddingCallFunction[] = "tpuboard_tf_embedding_call";

/// A tensor in the memory of the host.
struct HostTensor {
  int type = 0;  ///< DataType of TensorFlow
  std::vector<int64_t> dims;
  const void* bytes = nullptr;
};
using HostTensorFunction = void(const void* tensor, HostTensor& read);  // a TF_Tensor
inline constexpr char kHostTensorFunction[] = "tpuboard_tf_host_tensor";

// "2.20.0": the version of TensorFlow that the library was built for. Of every build.
using LowerVersionFunction = const char*();
inline constexpr char kLowerVersionFunction[] = "tpuboard_tf_version";

// TPU_LOWERING_INTERFACE of the library. Of every build.
using LowerInterfaceFunction = const char*();
inline constexpr char kLowerInterfaceFunction[] = "tpuboard_tf_interface";

}  // namespace tpu::tensorflow
