#include "passes/host_memory.hpp"

#include <algorithm>
#include <unordered_map>

#include "passes/host_stacks.hpp"

namespace tpu::compiler {
namespace {

bool is_in_host_memory(const Value* v) {
  const auto kind = placement(v->def);
  return kind && kind != MemoryKind::kDevice;
}

class HostMemory {
 public:
  HostMemory(Module& module, int64_t next_channel)
      : module_(module),
        main_(*module.main),
        end_(main_.body.terminator()),
        uses_(compute_uses(main_.body)),
        next_channel_(next_channel) {}

  void run() {
    name_results();
    region(main_.body);
  }

 private:
  // Programs that are no JAX programs may say it at the placement alone.
  void name_results() {
    const auto& returned = end_->operands;
    for (size_t i = 0; i < returned.size() && i < main_.results.size(); ++i) {
      if (is_in_host_memory(returned[i]) && main_.results[i].memory == MemoryKind::kDevice) {
        main_.results[i].memory = *placement(returned[i]->def);
      }
    }
  }

  void region(Region& r) {
    std::vector<std::unique_ptr<Op>> old;
    old.swap(r.ops);
    for (auto& op : old) {
      if (const auto kind = placement(op.get())) {
        *kind == MemoryKind::kDevice ? bring_back(*op, r) : put_away(*op, r);
        gone_.push_back(std::move(op));  // its results are keys
        continue;
      }
      if (op->kind == Kind::kOptimizationBarrier) {
        pass_on(*op);
      }
      op->operands = mapped(std::move(op->operands), now_);
      for (auto& inner : op->regions) {
        region(*inner);
      }
      r.ops.push_back(std::move(op));
    }
  }

  void put_away(const Op& op, Region& to) {
    Value* array = mapped(op.operands[0], now_);
    const Value* there = op.result();
    now_[there] = array;
    if (const auto before = channels_.find(op.operands[0]); before != channels_.end()) {
      channels_[there] = before->second;  // from one memory of the host to another one
    } else if (comes_back(there) && array->type.bytes() > 0) {
      if (array->type.bytes() > kMostTransferBytes) {
        note(op, "it exceeds the 4 GiB of one transfer");
      } else {
        const int64_t channel = next_channel_++;
        channels_[there] = channel;
        to.append(Kind::kSend, {array}, {}, HostAttrs{channel, -1, array->type, true, false},
                  op.loc);
      }
    }
    const auto readers = readers_of(there);
    const auto reads = std::ranges::find_if(
        readers, [this](const Op* user) { return !placement(user) && user != end_; });
    if (reads != readers.end()) {
      note(op, "the operation '" + std::string(kind_name((*reads)->kind)) + "' reads it");
    }
  }

  // What is in the host's memory has no part in a barrier, which jax.checkpoint puts between the
  // forward and the backward pass.
  void pass_on(const Op& barrier) {
    for (size_t i = 0; i < barrier.operands.size(); ++i) {
      if (const auto sent = channels_.find(barrier.operands[i]); sent != channels_.end()) {
        channels_[barrier.result(i)] = sent->second;
        now_[barrier.result(i)] = mapped(barrier.operands[i], now_);
      }
    }
  }

  void bring_back(const Op& op, Region& to) {
    const auto sent = channels_.find(op.operands[0]);
    if (sent == channels_.end()) {
      now_[op.result()] = mapped(op.operands[0], now_);
      return;
    }
    const Type& type = op.type();
    now_[op.result()] =
        to.append(Kind::kRecv, {}, {type}, HostAttrs{sent->second, -1, type, true, false}, op.loc)
            ->result();
  }

  // Behind barriers.
  std::vector<const Op*> readers_of(const Value* v) const {
    std::vector<const Op*> readers;
    const auto found = uses_.find(v);
    if (found == uses_.end()) {
      return readers;
    }
    for (const Op* user : found->second) {
      if (user->kind != Kind::kOptimizationBarrier) {
        readers.push_back(user);
        continue;
      }
      for (size_t i = 0; i < user->operands.size(); ++i) {
        if (user->operands[i] == v) {
          const auto behind = readers_of(user->result(i));
          readers.insert(readers.end(), behind.begin(), behind.end());
        }
      }
    }
    return readers;
  }

  bool comes_back(const Value* there) const {
    return std::ranges::any_of(readers_of(there), [this](const Op* user) {
      const auto kind = placement(user);
      return kind && (*kind == MemoryKind::kDevice || comes_back(user->result()));
    });
  }

  void note(const Op& op, const std::string& why) {
    module_.notes.push_back("host memory: " + to_string(op.type()) + " placed in " +
                            op.as<CustomCallAttrs>().backend_config + " at " + to_string(*op.loc) +
                            " stays in HBM while the program runs: " + why);
  }

  Module& module_;
  Function& main_;
  const Op* const end_;
  const Uses uses_;
  int64_t next_channel_;
  std::unordered_map<const Value*, int64_t> channels_;  // of arrays in the host's memory
  ValueMap now_;
  std::vector<std::unique_ptr<Op>> gone_;
};

}  // namespace

void keep_in_host_memory(Module& module) {
  bool any = false;
  int64_t next_channel = 1;
  walk(module.main->body, [&](const Op& op) {
    any = any || placement(&op);
    if (const auto* host = std::get_if<HostAttrs>(&op.attrs); host != nullptr && host->memory) {
      next_channel = std::max(next_channel, host->channel + 1);
    }
  });
  if (any) {
    keep_stacks_in_host_memory(module, next_channel);
    HostMemory(module, next_channel).run();
  }
}

}  // namespace tpu::compiler
