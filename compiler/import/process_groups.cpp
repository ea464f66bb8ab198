// The strategies of the StableHLO specification ("Collective ops"), for 2 replicas of 2 partitions:
//   cross_replica                [[0, 1]]   =>   [[0, 2], [1, 3]]
//   cross_partition              [[0, 1]]   =>   [[0, 1], [2, 3]]
//   cross_replica_and_partition  [[0, 1]]   =>   [[0, 2, 1, 3]]     with all their partitions
//   flattened_ids                [[0, 3]]   =>   [[0, 3]]
#include "import/process_groups.hpp"

namespace tpu::compiler::frontend {
namespace {

enum class Ids { kReplicas, kPartitions, kReplicasOfAllPartitions, kDevices };

Ids ids_of(Kind kind, const OpReader& op) {
  const bool channel = op.integer("channel_id") > 0;
  switch (kind) {
    case Kind::kAllToAll:
    case Kind::kCollectiveBroadcast:
    case Kind::kCollectivePermute:
      return channel ? Ids::kPartitions : Ids::kReplicas;
      TPU_CASES(SOURCE, ELEMENTWISE, SHAPE, CONTRACTION, BODY, CONTROL, HOST, WHOLE, MATRIX, CALL,
                SIZED, GLOBAL, END)
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
    case Kind::kAllGather:
      break;
  }
  if (!op.has("use_global_device_ids") || !op.boolean("use_global_device_ids")) {
    return channel ? Ids::kReplicasOfAllPartitions : Ids::kReplicas;
  }
  if (!channel) {
    op.fail("use_global_device_ids needs a channel_id above 0");
  }
  return Ids::kDevices;
}

int64_t count_of(Ids ids, const CoreCounts& cores) {
  switch (ids) {
    case Ids::kPartitions:
      return cores.partitions;
    case Ids::kDevices:
      return cores.num_cores;
    default:
      return cores.replicas;
  }
}

void check_ids(Ids ids, const OpReader& op, const Groups& listed, const CoreCounts& cores) {
  const int64_t count = count_of(ids, cores);
  const std::string name = ids == Ids::kPartitions ? "partition"
                           : ids == Ids::kDevices  ? "device"
                                                   : "replica";
  for (const auto& group : listed) {
    for (const int64_t id : group) {
      if (id < 0 || id >= count) {
        op.fail("the op names " + name + " " + std::to_string(id) + ", the program has " +
                std::to_string(count) + " (num_replicas " + std::to_string(cores.replicas) +
                ", num_partitions " + std::to_string(cores.partitions) + ")" +
                (name == "replica" && cores.partitions > 1
                     ? "; groups of partitions need a channel, as the collectives of "
                       "jax.shard_map have"
                     : ""));
      }
    }
  }
}

}  // namespace

Groups process_groups(Kind kind, const OpReader& op, const Groups& listed,
                      const CoreCounts& cores) {
  const Ids ids = ids_of(kind, op);
  check_ids(ids, op, listed, cores);
  Groups all = listed;
  if (all.empty()) {
    all.emplace_back();
    for (int64_t id = 0; id < count_of(ids, cores); ++id) {
      all.back().push_back(id);
    }
  }
  if (ids == Ids::kDevices) {
    return all;
  }
  Groups out;
  const auto add = [&](const std::vector<int64_t>& group, int64_t step, int64_t first) {
    for (const int64_t id : group) {
      out.back().push_back(id * step + first);
    }
  };
  for (const auto& group : all) {
    if (ids == Ids::kPartitions) {
      for (int64_t replica = 0; replica < cores.replicas; ++replica) {
        out.emplace_back();
        add(group, 1, replica * cores.partitions);
      }
      continue;
    }
    for (int64_t partition = 0; partition < cores.partitions; ++partition) {
      if (ids == Ids::kReplicas || partition == 0) {
        out.emplace_back();
      }
      add(group, cores.partitions, partition);
    }
  }
  return out;
}

}  // namespace tpu::compiler::frontend
