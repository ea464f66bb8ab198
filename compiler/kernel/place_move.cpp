// Moves: see place_move.hpp.
#include "kernel/place_move.hpp"

namespace tpu::compiler {

namespace {

bool ends_in_a_run(const View& view, const Dims& dims) {
  for (size_t d = dims.size(); d-- > 0;) {
    if (dims[d] != 1) {
      return view.stride[d] == 1;
    }
  }
  return true;
}

}  // namespace

void place_packed(const Op& op, KernelClass kind, Fusion& fusion) {
  Kernel k(kind);
  k.ops = {&op};
  k.out = op.result();
  for (const Value* v : op.operands) {
    k.reads.push_back(fusion.dense(v));
  }
  for (const auto& r : op.results) {
    k.writes.push_back(r.get());
  }
  fusion.add(std::move(k));
}

void place_host(const Op& op, Fusion& fusion) {
  Kernel k(KernelClass::kHost);
  k.ops = {&op};
  for (const Value* v : op.operands) {
    k.reads.push_back(fusion.dense(v));
  }
  for (const auto& r : op.results) {
    k.out = r.get();
    k.writes.push_back(r.get());
  }
  fusion.add(std::move(k));
}

void place_all_reduce(const Bucket& bucket, int64_t piece, Fusion& fusion) {
  Kernel k(KernelClass::kAllReduce);
  k.ops = bucket.ops;
  k.as<ExchangePart>().streamed = bucket.streamed;
  for (const Op* o : k.ops) {
    for (size_t i = 0; i < o->operands.size(); ++i) {
      const Type& type = o->operand_type(i);
      const int64_t body = streamed_bytes(type, piece);
      const Span span{k.reads.size(), bucket.streamed ? 0 : body,
                      bucket.streamed ? body : type.bytes() - body};
      if (span.bytes == 0 && (bucket.streamed || type.bytes() > 0)) {
        continue;
      }
      k.reads.push_back(fusion.dense(o->operands[i]));
      k.writes.push_back(o->result(i));
      k.as<ExchangePart>().spans.push_back(span);
    }
  }
  fusion.add(std::move(k));
}

void place_pad(const Op& op, Fusion& fusion) {
  Kernel k(KernelClass::kPad);
  k.ops = {&op};
  k.out = op.result();
  const Value* x = op.operands[0];
  if (x->type.count() > 0) {
    fusion.materialise(x);
    NestAccess a = fusion.strided(x);
    if (!ends_in_a_run(a.view, x->type.dims)) {
      a = {fusion.dense(x), {0, row_major_strides(x->type.dims)}};
    }
    k.as<MovePart>().source = a.view;
    k.reads.push_back(a.value);
  }
  const Value* value = op.operands[1];
  if (value->def == nullptr || value->def->kind != Kind::kConstant) {
    k.reads.push_back(fusion.dense(value));
  }
  k.writes = {k.out};
  fusion.add(std::move(k));
}

}  // namespace tpu::compiler
