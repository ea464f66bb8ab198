// Calls of the artifact before anything walks along them: functions that call themselves are
// refused, and regions and calls that lie too deep in each other. Everything behind the import may
// recurse over regions.
#include <algorithm>

#include "import/import_parts.hpp"

namespace tpu::compiler::frontend {

namespace {

using bytecode::Dialect;
using bytecode::kMaxRegionDepth;

// Calls fn(op, depth) for the ops of a region and those inside of them; the reader bounds the
// depth.
template <typename Fn>
void each_op(const RawRegion& region, int depth, const Fn& fn) {
  for (const RawOp& op : region.ops) {
    fn(op, depth);
    for (const RawRegion& inner : op.regions) {
      each_op(inner, depth + 1, fn);
    }
  }
}

}  // namespace

// One function of the walk over the graph of calls.
struct CallGraph::CallNode {
  struct Call {
    const RawOp* op;
    const RawOp* callee;
    int depth;  // regions around it, in its function
  };
  std::string name;
  std::vector<Call> calls;
  size_t next = 0;     // call to look at
  int depth = 0;       // regions in each other, those of called functions included
  int calls_deep = 0;  // calls in each other
  bool open = false;   // on the path to the function at hand
};

void CallGraph::check() {
  std::map<const RawOp*, CallNode> nodes;  // looked up only
  for (const auto& [name, function] : functions_) {
    CallNode& node = nodes[function];
    node.name = name;
    for (const RawRegion& region : function->regions) {
      each_op(region, 0, [&](const RawOp& op, int depth) {
        node.depth = std::max(node.depth, depth + (op.regions.empty() ? 0 : 1));
        if (const RawOp* callee = referred_function(op)) {
          node.calls.push_back({&op, callee, depth});
        }
      });
    }
  }
  for (const auto& [name, function] : functions_) {
    follow_calls(*function, nodes);
  }
}

// Depth first, without recursion: chains of calls may be as long as the file.
void CallGraph::follow_calls(const RawOp& function, std::map<const RawOp*, CallNode>& nodes) {
  std::vector<CallNode*> path;
  const auto enter = [&](const RawOp* callee) {
    path.push_back(&nodes.at(callee));
    path.back()->open = true;
  };
  enter(&function);
  while (!path.empty()) {
    CallNode& node = *path.back();
    if (node.next < node.calls.size()) {
      const CallNode::Call& call = node.calls[node.next];
      CallNode& callee = nodes.at(call.callee);
      if (callee.open) {
        fail_recursion(*call.op, callee.name, &callee == &node ? "" : node.name);
      }
      if (callee.next < callee.calls.size()) {
        enter(call.callee);
        continue;
      }
      ++node.next;
      node.depth = std::max(node.depth, call.depth + callee.depth);
      node.calls_deep = std::max(node.calls_deep, 1 + callee.calls_deep);
      if (node.depth > kMaxRegionDepth || node.calls_deep > kMaxCallDepth) {
        fail_depth(*call.op, node.depth > kMaxRegionDepth);
      }
      continue;
    }
    node.open = false;
    path.pop_back();
  }
}

void CallGraph::fail_recursion(const RawOp& call, const std::string& callee,
                               const std::string& through) {
  open(call).fail(
      "the function @" + callee + " calls itself" +
      (through.empty() ? "" : " through @" + through) +
      "; a program cannot recurse: write a loop (jax.lax.while_loop, jax.lax.fori_loop)");
}

void CallGraph::fail_depth(const RawOp& call, bool regions) {
  open(call).fail(regions ? "loops and branches are nested more than " +
                                std::to_string(kMaxRegionDepth) +
                                " deep inside of this call; reduce the nesting"
                          : "calls are nested more than " + std::to_string(kMaxCallDepth) +
                                " deep; call fewer functions from functions, or "
                                "leave out jax.jit on the inner ones");
}

LocRef CallGraph::caller_loc(const RawOp& callee) {
  std::set<const RawOp*> seen;
  return caller_loc(callee, seen);
}

LocRef CallGraph::caller_loc(const RawOp& callee, std::set<const RawOp*>& seen) {
  LocRef found;
  for (const auto& [name, function] : functions_) {
    const RawOp* call = call_of(callee, *function);
    if (call == nullptr || !seen.insert(function).second) {
      continue;
    }
    const LocRef own = tables_.loc(call->loc);
    found = own->frames.empty() ? nested_loc(caller_loc(*function, seen), own) : own;
    if (!found->frames.empty()) {
      break;
    }
  }
  return found;
}

const RawOp* CallGraph::call_of(const RawOp& callee, const RawOp& within) const {
  for (const RawRegion& region : within.regions) {
    for (const RawOp& op : region.ops) {
      const RawOp* call = called_function(op) == &callee ? &op : call_of(callee, op);
      if (call != nullptr) {
        return call;
      }
    }
  }
  return nullptr;
}

}  // namespace tpu::compiler::frontend
