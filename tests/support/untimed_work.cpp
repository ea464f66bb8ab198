// Data work of the untimed machine: VPU and matrix unit of the model, transfers element by element.
#include "mxu/mxu_command.hpp"
#include "untimed_state.hpp"

namespace tpu::test {

namespace {

template <typename Fn>
void for_box(const std::array<uint32_t, 5>& n, Fn&& fn) {
  std::array<uint32_t, 5> i{};
  for (const uint32_t count : n) {
    if (count == 0) {
      return;
    }
  }
  for (;;) {
    fn(i);
    size_t d = 5;
    while (d > 0 && ++i[d - 1] == n[d - 1]) {
      i[--d] = 0;
    }
    if (d == 0) {
      return;
    }
  }
}

}  // namespace

void UntimedMachine::State::work(Core& c, const Queued& q, const spec::MatmulCommand& m) {
  model::MxuJob job = model::mxu_job(m);
  for (const MemRange& r : memory_ranges(program.listing, q.decoded->body)) {
    spec::Addr a{};
    a.space = static_cast<uint8_t>(spec::Space::kVmem);
    at(c, a, r.lo, r.hi - r.lo);
  }
  job.lhs = c.vmem.data() + q.address(m.lhs);
  job.rhs = c.vmem.data() + q.address(m.rhs);
  job.out = c.vmem.data() + q.address(m.out);
  mxu->run(job);
}

void UntimedMachine::State::work(Core& c, const Queued& q, const spec::VpuKernelCommand& k) {
  std::vector<int64_t> bases;
  for (const spec::VpuAccess& a : q.decoded->body.accesses) {
    bases.push_back(q.address(a.addr));
  }
  std::array<uint32_t, model::kVpuScalars> scalars{};
  for (size_t i = 0; i < scalars.size(); ++i) {
    scalars[i] = static_cast<uint32_t>(q.regs[k.scalar[i]]);
  }
  const model::VpuKernel kernel(program.vpu[static_cast<size_t>(q.decoded->body.program)], k,
                                q.decoded->body.accesses, bases, scalars);
  const std::string error = kernel.check(c.vmem.size());
  if (!error.empty()) {
    throw UntimedError(error);
  }
  kernel.run(c.vmem.data());
}

void UntimedMachine::State::work(Core& c, const Queued& q, const spec::TransposeCommand& t) {
  const int64_t e = t.elem_bytes;
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t r = 0; r < t.rows; ++r) {
      for (int64_t k = 0; k < t.cols; ++k) {
        const int64_t from = q.address(t.src) + b * t.src_batch + r * t.src_pitch + k * e;
        const int64_t to = q.address(t.dst) + b * t.dst_batch + k * t.dst_pitch + r * e;
        std::memcpy(at(c, t.dst, to, e), at(c, t.src, from, e), static_cast<size_t>(e));
      }
    }
  }
}

void UntimedMachine::State::work(Core& c, const Queued& q, const spec::DmaCommand& d) {
  const bool remote = q.decoded->body.queue() == spec::Queue::kDmaRemote;
  Core& to = remote ? cores[partition_on(q.regs[d.peer_reg])] : c;
  const int64_t src = q.address(d.src), dst = q.address(d.dst);
  auto counts = d.counts;
  int64_t run = d.elem_bytes;
  if (d.src_strides[4] == run && d.dst_strides[4] == run) {
    run *= counts[4];
    counts[4] = counts[4] == 0 ? 0 : 1;
  }
  for_box(counts, [&](const std::array<uint32_t, 5>& i) {
    int64_t s = src, t = dst;
    for (size_t k = 0; k < 5; ++k) {
      s += i[k] * d.src_strides[k];
      t += i[k] * d.dst_strides[k];
    }
    std::memmove(at(to, d.dst, t, run), at(c, d.src, s, run), static_cast<size_t>(run));
  });
}

void UntimedMachine::State::work(Core& c, const Queued& q, const spec::DmaIndexedCommand& d) {
  const bool scatter = d.scatter();
  for (int64_t r = 0; r < d.records; ++r) {
    int32_t value = 0;
    std::memcpy(&value, at(c, d.list, q.address(d.list) + 4 * r, 4), 4);
    if (value == -1) {
      continue;
    }
    const int64_t place = int64_t{value} * d.unit;
    for_box({1, d.counts[0], d.counts[1], d.counts[2], d.counts[3]},
            [&](const std::array<uint32_t, 5>& i) {
              int64_t s = scatter ? r * d.record_stride : place;
              int64_t t = scatter ? place : r * d.record_stride;
              for (size_t k = 0; k < 4; ++k) {
                s += i[k + 1] * d.src_strides[k];
                t += i[k + 1] * d.dst_strides[k];
              }
              const int64_t indexed = scatter ? t : s, e = d.elem_bytes;
              if (indexed < 0 || indexed + e > d.span) {
                throw UntimedError("a list value leads outside of its span");
              }
              std::memmove(at(c, d.dst, q.address(d.dst) + t, e),
                           at(c, d.src, q.address(d.src) + s, e), static_cast<size_t>(e));
            });
  }
}

void UntimedMachine::State::work(Core& c, const Queued& q, const spec::FillCommand& f) {
  for_box(f.counts, [&](const std::array<uint32_t, 5>& i) {
    int64_t t = q.address(f.dst);
    for (size_t k = 0; k < 5; ++k) {
      t += i[k] * f.dst_strides[k];
    }
    std::memcpy(at(c, f.dst, t, f.elem_bytes), &f.pattern, f.elem_bytes);
  });
}

}  // namespace tpu::test
