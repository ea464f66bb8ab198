// Opcodes between cores, and with the host: see opcodes.hpp.
#include <algorithm>

#include "import/hlo/opcodes.hpp"
#include "import/hlo/read_parts.hpp"

namespace tpu::compiler::hlo::cores {
namespace {

constexpr int64_t kBetweenDevices = 1, kToHost = 2, kFromHost = 3;  // channel types

// The form that ends in another instruction names its operands too, in front of its results.
bool begins(const Step& step) { return step.at.opcode.ends_with("-start"); }

const Shape& results_of(const Step& step) {
  if (!begins(step) || step.at.opcode == "all-reduce-start") {
    return step.at.shape;
  }
  if (step.at.shape.members.size() < 2) {
    step.fail("its shape is " + to_string(step.at.shape) +
              ", expected a tuple of operands and results");
  }
  return step.at.shape.members[1];
}

void give(const Step& step, std::vector<uint32_t> leaves) {
  if (begins(step)) {
    step.begin(results_of(step), std::move(leaves));
  } else {
    step.define(std::move(leaves));
  }
}

// Rows of replica_groups; -1 fills up those that are shorter.
uint32_t groups(const Step& step) {
  const std::vector<Ints> all = groups_of(step.at);
  size_t longest = 0;
  for (const Ints& group : all) {
    longest = std::max(longest, group.size());
    if (group.empty() ||
        std::any_of(group.begin(), group.end(), [](int64_t id) { return id < 0; })) {
      step.fail(group.empty() ? "a group of its replicas is empty"
                              : "a group names a replica of a negative number");
    }
  }
  constexpr size_t kMost = 1 << 20;
  if (longest * all.size() > kMost) {
    step.fail("groups of more devices than any machine has");
  }
  Ints ids;
  for (const Ints& group : all) {
    ids.insert(ids.end(), group.begin(), group.end());
    ids.resize(ids.size() + longest - group.size(), -1);
  }
  return step.build().tensor(ids, {std::ssize(all), static_cast<int64_t>(longest)});
}

RawOp collective(const Step& step, std::string_view vhlo, bool has_global_ids = true) {
  RawOp op = step.op(vhlo);
  op.properties = {{"channel_id", step.build().integer(std::max<int64_t>(step.at.channel, 0))},
                   {"replica_groups", groups(step)}};
  if (has_global_ids) {
    op.properties.emplace_back("use_global_device_ids", step.build().integer(step.at.global_ids));
  }
  return op;
}

// For each operand an op, as `make` gives it, whose result is that of the same number.
template <typename Make>
void one_by_one(const Step& step, const Make& make) {
  const std::vector<uint32_t> operands = step.values();
  const std::vector<const Shape*> results = leaves_of(results_of(step));
  if (operands.size() != results.size()) {
    step.fail("it has " + std::to_string(operands.size()) + " arrays as operands and " +
              std::to_string(results.size()) + " as results, expected as many");
  }
  std::vector<uint32_t> made;
  const RawOp plain = make();
  for (size_t i = 0; i < operands.size(); ++i) {
    RawOp op = plain;
    if (plain.name.starts_with("reduce_scatter")) {
      op.regions.push_back(step.region(0));  // its own: values are unique
    }
    op.operands = {operands[i]};
    made.push_back(step.add(std::move(op), *results[i]));
  }
  give(step, std::move(made));
}

// How many take part: the size of a group, else of the one group of all.
int64_t members(const Step& step) {
  if (const std::vector<Ints> all = groups_of(step.at); !all.empty()) {
    return std::ssize(all[0]);
  }
  return step.at.channel > 0 ? step.converter.partitions : step.converter.replicas;
}

RawOp exchange(const Step& step, std::string_view vhlo, int64_t dim, int64_t count) {
  RawOp op = collective(step, vhlo, false);
  op.properties.insert(op.properties.end(), {{"split_dimension", step.build().integer(dim)},
                                             {"concat_dimension", step.build().integer(dim)},
                                             {"split_count", step.build().integer(count)}});
  return op;
}

uint32_t reshaped(const Step& step, uint32_t value, const Shape& to) {
  RawOp op = step.op("reshape_v1");
  op.operands = {value};
  return step.add(std::move(op), to);
}

// The form of a tuple: operand i goes to member i of the group, result i comes from there.
//   (a, b) = all-to-all(x, y)  =>  z = all_to_all(concatenate x, y); a, b = halves of z
void exchange_of_tuple(const Step& step, std::string_view vhlo) {
  const auto count = static_cast<int64_t>(step.num_operands());
  const Shape& part = step.shape(0);
  for (size_t i = 0; i < step.num_operands(); ++i) {
    if (!same_arrays(step.shape(i), part) || part.is_tuple()) {
      step.fail("operand " + std::to_string(i) + " is " + to_string(step.shape(i)) +
                ", expected an array like operand 0, " + to_string(part));
    }
  }
  if (count != members(step)) {
    step.fail("it has " + std::to_string(count) + " operands, expected " +
              std::to_string(members(step)) + ", one for each member of a group");
  }
  Shape row = part;
  row.dims = row.dims.empty() ? Ints{1} : row.dims;
  const int64_t each = row.dims[0];
  constexpr int64_t kMost = int64_t{1} << 31;
  if (each < 0 || each > kMost) {
    step.fail("operands of the impossible shape " + to_string(part));
  }
  Shape all = row;
  all.dims[0] = each * count;
  RawOp joined = step.op("concatenate_v1");
  for (const uint32_t value : step.values()) {
    joined.operands.push_back(part.dims.empty() ? reshaped(step, value, row) : value);
  }
  joined.properties.emplace_back("dimension", step.build().integer(0));
  RawOp op = exchange(step, vhlo, 0, count);
  op.operands = {step.add(std::move(joined), all)};
  const uint32_t exchanged = step.add(std::move(op), all);
  std::vector<uint32_t> results;
  for (int64_t i = 0; i < count; ++i) {
    Ints start(all.dims.size(), 0), limit = all.dims;
    start[0] = i * each;
    limit[0] = start[0] + each;
    RawOp cut = step.op("slice_v1");
    cut.operands = {exchanged};
    cut.properties = {{"start_indices", step.build().list(start)},
                      {"limit_indices", step.build().list(limit)},
                      {"strides", step.build().list(Ints(all.dims.size(), 1))}};
    const uint32_t value = step.add(std::move(cut), row);
    results.push_back(part.dims.empty() ? reshaped(step, value, part) : value);
  }
  step.define(std::move(results));
}

void channel(const Step& step, int64_t type, RawOp& op) {
  op.properties = {{"channel_id", step.build().integer(step.at.channel)},
                   {"channel_type", step.build().integer(type)},
                   {"is_host_transfer", step.build().integer(step.at.to_host)}};
  op.dictionary = step.dictionary();
}

}  // namespace

void all_reduce(const Step& step, std::string_view vhlo) {
  RawOp op = collective(step, vhlo);
  op.operands = step.values();
  op.regions.push_back(step.region(0));
  give(step, step.add(std::move(op), leaves_of(results_of(step))));
}

void all_gather(const Step& step, std::string_view vhlo) {
  RawOp op = collective(step, vhlo);
  op.operands = step.values();
  op.properties.emplace_back("all_gather_dim", step.build().integer(step.dim()));
  give(step, step.add(std::move(op), leaves_of(results_of(step))));
}

void reduce_scatter(const Step& step, std::string_view vhlo) {
  one_by_one(step, [&] {
    RawOp op = collective(step, vhlo);
    op.properties.emplace_back("scatter_dimension", step.build().integer(step.dim()));
    return op;
  });
}

void all_to_all(const Step& step, std::string_view vhlo) {
  if (step.at.dims.empty()) {
    exchange_of_tuple(step, vhlo);
    return;
  }
  one_by_one(step, [&] { return exchange(step, vhlo, step.dim(), members(step)); });
}

void permute(const Step& step, std::string_view vhlo) {
  if (!step.at.slice_sizes.empty()) {
    step.fail("a collective-permute of slices in place is not supported; permute whole arrays");
  }
  Ints ids;
  for (const auto& [source, target] : step.at.pairs) {
    ids.push_back(source);
    ids.push_back(target);
  }
  one_by_one(step, [&] {
    RawOp op = step.op(vhlo);
    op.properties = {
        {"channel_id", step.build().integer(std::max<int64_t>(step.at.channel, 0))},
        {"source_target_pairs", step.build().tensor(ids, {std::ssize(step.at.pairs), 2})}};
    return op;
  });
}

void broadcast(const Step& step, std::string_view vhlo) {
  one_by_one(step, [&] { return collective(step, vhlo, false); });
}

// The results of send and recv name a buffer and a number beside the token.
void send(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  channel(step, step.at.to_host ? kToHost : kBetweenDevices, op);
  Shape token;
  token.type = primitive::kToken;
  std::vector<uint32_t> leaves = step.operand(0).leaves;
  leaves.push_back(bytecode::kNone);
  leaves.push_back(step.add(std::move(op), token));
  step.define(std::move(leaves));
}

void send_done(const Step& step, std::string_view) {
  const Bundle& before = step.operand(0);
  if (before.shape->members.size() != 3 || !before.shape->members.back().is_token()) {
    step.fail("its operand is " + to_string(*before.shape) + ", expected what send gives");
  }
  step.define(Bundle{&before.shape->members.back(), {before.leaves.back()}, nullptr});
}

void recv(const Step& step, std::string_view vhlo) {
  const std::vector<Shape>& members = step.at.shape.members;
  if (members.size() != 3 || !members[2].is_token()) {
    step.fail("its shape is " + to_string(step.at.shape) +
              ", expected a tuple of an array, u32[] and a token");
  }
  RawOp op = step.with_operands(vhlo);
  channel(step, step.at.to_host ? kFromHost : kBetweenDevices, op);
  std::vector<const Shape*> results = leaves_of(members[0]);
  results.push_back(&members[2]);
  std::vector<uint32_t> leaves = step.add(std::move(op), results);
  leaves.insert(leaves.end() - 1, bytecode::kNone);
  step.define(std::move(leaves));
}

void recv_done(const Step& step, std::string_view) {
  const Bundle& before = step.operand(0);
  const std::vector<Shape>& own = step.at.shape.members;
  const std::vector<Shape>& given = before.shape->members;
  if (given.size() != 3 || given[1].is_tuple() || !given[2].is_token() || own.size() != 2 ||
      !same_arrays(own[0], given[0]) || !own[1].is_token()) {
    step.fail("its shape is " + to_string(step.at.shape) + ", its operand " +
              to_string(*before.shape) + ": expected what recv gives, without the number");
  }
  std::vector<uint32_t> leaves = before.leaves;
  leaves.erase(leaves.end() - 2);
  step.define(std::move(leaves));
}

// Refused by the import, with what to do instead.
void infeed(const Step& step, std::string_view vhlo) { step.finish(vhlo); }

}  // namespace tpu::compiler::hlo::cores
