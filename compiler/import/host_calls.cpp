// Transfers between a program that runs and its host, which jax.debug.print, jax.pure_callback,
// io_callback and jax.debug.callback become on a TPU. See import_parts.hpp.
//   %t2 = send %x, %t1 {channel 1}          =>     send %x {channel 1}
//   %y, %t3 = recv %t2 {channel 2}                 %y = recv {channel 2}
// Tokens say the order of such ops, which is that of the graph.
#include <limits>

#include "import/import_parts.hpp"

namespace tpu::compiler::frontend {
namespace {

constexpr int64_t kToHost = 2, kFromHost = 3;  // channel types
constexpr int64_t kMostBytes = std::numeric_limits<uint32_t>::max();

}  // namespace

void HostTransfers::convert(const OpReader& reader, Kind kind, Region& to) {
  const RawOp& op = reader.raw();
  const bool sends = kind == Kind::kSend;
  const size_t arrays = sends ? op.operands.size() - 1 : op.results.size() - 1;
  if (op.operands.empty() || op.results.empty() || (sends && op.results.size() != 1) ||
      (!sends && op.operands.size() != 1) || !reader.is_token(op.result_types.back())) {
    reader.fail(sends ? "expected arrays and a token as operands, and a token as the only result"
                      : "expected a token as the only operand, and arrays and a token as results");
  }
  if (!reader.boolean("is_host_transfer") ||
      reader.integer("channel_type") != (sends ? kToHost : kFromHost)) {
    reader.fail(
        "only transfers with the host are supported; between cores use "
        "jax.lax.ppermute");
  }
  if (arrays != 1) {
    reader.fail("a transfer of " + std::to_string(arrays) +
                " arrays is not supported; transfer one array with each op");
  }
  HostAttrs attrs{reader.integer("channel_id"), speaking_partition(reader), {}};
  attrs.array = sends ? operand(reader, 0)->type : reader.type(op.result_types[0]);
  if (attrs.array.bytes() > kMostBytes) {
    reader.fail("an array of " + std::to_string(attrs.array.bytes()) +
                " bytes exceed one transfer to or from the host; split it");
  }
  values_[op.results.back()] = operand(reader, op.operands.size() - 1);
  if (sends) {
    to.append(kind, {operand(reader, 0)}, {}, attrs, reader.loc());
  } else {
    values_[op.results[0]] = to.append(kind, {}, {attrs.array}, attrs, reader.loc())->result();
  }
}

// Whole arrays go by one device, which the sharding names; parts of jax.shard_map by each.
int64_t HostTransfers::speaking_partition(const OpReader& reader) {
  if (cores_.partitions == 1) {
    return -1;
  }
  const uint32_t shardy = tables_.entry(reader.raw().dictionary, "sdy.sharding");
  int64_t partition = -1;
  if (shardy != bytecode::kNone) {
    partition = shardings_.one_device(reader, shardy).value_or(-1);
  } else if (const auto text =
                 tables_.text(tables_.entry(reader.raw().dictionary, "mhlo.sharding"))) {
    partition = gspmd_device(*text).value_or(-1);
  }
  if (partition >= cores_.partitions) {
    reader.contradict("the device " + std::to_string(partition) +
                      ": expected one of the program's " + std::to_string(cores_.partitions));
  }
  if (partition >= 0 && cores_.replicas > 1) {
    reader.fail(
        "a callback whose result all partitions receive is not supported in a program with several "
        "replicas; call it inside of jax.shard_map, or compile with num_replicas = 1");
  }
  return partition;
}

}  // namespace tpu::compiler::frontend
