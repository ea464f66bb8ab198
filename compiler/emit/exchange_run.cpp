// Start and end of a streamed exchange.
#include "emit/exchange_run.hpp"

#include <algorithm>

#include "program/estimate.hpp"

namespace tpu::compiler {

// A buffer that the exchange uses must neither move nor die before its end.
void Emitter::hold(const Value* v) { held_.insert(&buffer(v)); }

void Emitter::start_run(const Kernel& k) {
  auto run = std::make_unique<ExchangeRun>();
  ExchangeRun& r = *run;
  const Op& op = *k.ops[0];
  r.kernel = &k;
  r.exchange = exchange_of(op, module_.num_cores);
  r.bytes = kernels_.piece;
  r.unit = elem_bytes(op.operand_type(0).elem);
  r.type = static_cast<uint8_t>(isa_elem(op.operand_type(0).elem));
  r.program = reduce_program(op);
  r.id = op_id(k);
  for (const Span& span : k.spans) {
    const auto update = std::find_if(k.updates.begin(), k.updates.end(),
                                     [&](const Update& u) { return u.value == span.value; });
    for (int64_t at = 0; at < span.bytes; at += r.bytes) {
      ExchangeRun::Part p;
      p.shares = {{span.value, span.from + at, r.bytes, 0}};
      p.used = r.bytes;
      p.element = at / r.unit;
      p.update = update == k.updates.end() ? nullptr : &*update;
      r.parts.push_back(std::move(p));
    }
  }
  prepare_run_buffers(r);
  run_ = std::move(run);
  // Inside a region it ends at once: nothing may be on its way at a boundary.
  const bool overlaps = overlap_runs && regions_ == 0;
  const auto next = std::find_if(kernels_.kernels.begin(), kernels_.kernels.end(),
                                 [&](const Kernel& other) { return other.order > k.order; });
  const bool alone = !overlaps || next == kernels_.kernels.end() || needs_run(*next);
  for (r.lag = alone ? 2 : 1;; --r.lag) {  // with less VMEM beside other kernels
    try {
      take_run_memory(r);
      load_scalars(r);
      break;
    } catch (const VmemFull&) {
      release_run(r);
      if (r.lag == 1) {
        too_large(k);
      }
    }
  }
  stage_registers(r.exchange);
  half_registers(r);
  paced_items_ = listing.items.size();
  paced_busy_.fill(0);
  if (!overlaps) {
    finish_run();
  }
}

void Emitter::pace() {
  if (run_ == nullptr) {
    return;
  }
  ExchangeRun& r = *run_;
  for (; paced_items_ < listing.items.size(); ++paced_items_) {
    if (const auto* c = std::get_if<Command>(&listing.items[paced_items_])) {
      paced_busy_[static_cast<size_t>(c->queue())] += busy_cycles(*c, listing, board_);
    }
  }
  // A round sends a piece less its last part, twice, through the port of the core.
  const uint64_t round = port_cycles(board_, 2 * (r.bytes - r.part_bytes()));
  while (*std::max_element(paced_busy_.begin(), paced_busy_.end()) >= round &&
         r.round < r.rounds()) {
    for (uint64_t& busy : paced_busy_) {
      busy -= std::min(busy, round);
    }
    run_round(r);
    paced_items_ = listing.items.size();
  }
  if (r.round >= r.rounds()) {
    finish_run();
  }
}

// Homes of results; operands stay where they are until the end.
void Emitter::prepare_run_buffers(ExchangeRun& r) {
  const Kernel& k = *r.kernel;
  for (const Span& span : k.spans) {
    hold(k.reads[span.value]);
    const bool updated = std::any_of(k.updates.begin(), k.updates.end(),
                                     [&](const Update& u) { return u.value == span.value; });
    if (!updated) {
      give_home(buffer(k.writes[span.value]));
      hold(k.writes[span.value]);
    }
  }
  for (const Update& u : k.updates) {
    for (const UpdateKernel& uk : u.kernels) {
      for (const NestAccess& a : uk.nest.accesses) {
        const auto it = buffers_.find(a.value);
        if (a.value == u.sum || it == buffers_.end()) {
          continue;
        }
        Buffer& b = it->second;
        if (a.view.stride[0] != 0 &&
            std::find(k.reads.begin(), k.reads.end(), a.value) != k.reads.end()) {
          if (!b.in_hbm) {
            store(b, r.id);
          }
          held_.insert(&b);
        }
      }
    }
    for (const auto* list : {&u.gathered, &u.sharded}) {
      for (const Value* w : *list) {
        give_home(buffer(w));
        hold(w);
      }
    }
  }
}

// Copies of small operands that are read at one place.
void Emitter::load_scalars(ExchangeRun& r) {
  for (const Update& u : r.kernel->updates) {
    for (const UpdateKernel& uk : u.kernels) {
      for (const NestAccess& a : uk.nest.accesses) {
        if (a.view.stride[0] != 0 || r.scalars.contains(a.value)) {
          continue;
        }
        const Buffer& b = buffer(a.value);
        const int64_t address = take(b.bytes);
        r.memory.push_back(address);
        r.scalars[a.value] = address;
        copy_bytes(where(b), vmem_addr(address), b.bytes, elem_bytes(a.value->type.elem), r.id);
      }
    }
  }
}

void Emitter::release_run(ExchangeRun& r) {
  for (const int64_t area : r.memory) {
    give(area);
  }
  r.memory.clear();
  r.buckets.clear();
  r.landing = {};
  r.back.clear();
  r.slots.clear();
  r.scalars.clear();
}

void Emitter::finish_run() {
  if (run_ == nullptr) {
    return;
  }
  ExchangeRun& r = *run_;
  while (r.round < r.rounds()) {
    run_round(r);
  }
  release_run(r);
  for (const Value* w : r.kernel->writes) {
    Buffer& b = buffer(w);
    b.in_hbm = b.in_hbm || b.slot >= 0;
  }
  held_.clear();
  run_ = nullptr;
}

// True if the kernel reads what the exchange makes, or writes memory that it uses.
bool Emitter::needs_run(const Kernel& k) const {
  if (run_ == nullptr) {
    return false;
  }
  switch (k.kind) {
    case KernelClass::kLoop:
    case KernelClass::kContract:
    case KernelClass::kConcatenate:
    case KernelClass::kPad:
      break;
    default:
      return true;
  }
  const std::vector<const Value*>& made = run_->kernel->writes;
  if (std::any_of(k.reads.begin(), k.reads.end(), [&](const Value* v) {
        return std::find(made.begin(), made.end(), v) != made.end();
      })) {
    return true;
  }
  const auto root = [&](const Buffer& b) {
    return b.slot < 0 || b.scratch ? -1 : listing.root_slot(b.slot);
  };
  return std::any_of(k.writes.begin(), k.writes.end(), [&](const Value* v) {
    const int slot = root(buffers_.at(v));
    return slot >= 0 && std::any_of(held_.begin(), held_.end(),
                                    [&](const Buffer* b) { return root(*b) == slot; });
  });
}

}  // namespace tpu::compiler
