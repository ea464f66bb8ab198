// Which operations fused code has, and the code that was made so far.
#include "vpu/vpu_fused_code.hpp"

#if TPU_HAS_XBYAK
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "vpu/vpu_fused_emit.hpp"
#endif

namespace tpu::model {

using spec::VpuOp;

bool fused_has(VpuOp op) {
  switch (op) {
    case VpuOp::kLoad:
    case VpuOp::kStore:
    case VpuOp::kScalar:
    case VpuOp::kImm:
    case VpuOp::kMov:
    case VpuOp::kMaskid:
    case VpuOp::kAddF:
    case VpuOp::kSubF:
    case VpuOp::kMulF:
    case VpuOp::kMinF:
    case VpuOp::kMaxF:
    case VpuOp::kDivF:
    case VpuOp::kFmaF:
    case VpuOp::kAbsF:
    case VpuOp::kNegF:
    case VpuOp::kFloorF:
    case VpuOp::kCeilF:
    case VpuOp::kRoundRneF:
    case VpuOp::kRbf16:
    case VpuOp::kSqrtF:
    case VpuOp::kRsqrtF:
    case VpuOp::kCmpF:
    case VpuOp::kCmpS:
    case VpuOp::kCmpU:
    case VpuOp::kSelect:
    case VpuOp::kAddI:
    case VpuOp::kSubI:
    case VpuOp::kMulI:
    case VpuOp::kAnd:
    case VpuOp::kOr:
    case VpuOp::kXor:
    case VpuOp::kShl:
    case VpuOp::kShr:
    case VpuOp::kSar:
    case VpuOp::kMinS:
    case VpuOp::kMaxS:
    case VpuOp::kMinU:
    case VpuOp::kMaxU:
    case VpuOp::kNot:
    case VpuOp::kNegI:
    case VpuOp::kAbsI:
    case VpuOp::kI2f:
    case VpuOp::kU2f:
      return true;
    default:
      return false;
  }
}

#if TPU_HAS_XBYAK
namespace {

// Runs that a process keeps code for, a page or two each; those beyond are interpreted.
constexpr size_t kMostRuns = 4096;

// Null where the host gives no memory for code, or has too few registers.
std::unique_ptr<FusedEmitter> make_code(FusedIsa isa, std::span<const FusedOp> ops) {
  try {
    auto emitter = std::make_unique<FusedEmitter>(isa, ops);
    return emitter->emit() ? std::move(emitter) : nullptr;
  } catch (const Xbyak::Error&) {
    return nullptr;
  }
}

class CodeCache {
 public:
  FusedFn get(FusedIsa isa, std::span<const FusedOp> ops) {
    static_assert(std::has_unique_object_representations_v<FusedOp>);
    std::string key(1 + ops.size_bytes(), static_cast<char>(isa));
    std::memcpy(key.data() + 1, ops.data(), ops.size_bytes());
    const std::lock_guard lock(mutex_);
    auto found = runs_.find(key);
    if (found == runs_.end()) {
      if (runs_.size() >= kMostRuns) {
        return nullptr;
      }
      found = runs_.emplace(std::move(key), make_code(isa, ops)).first;
    }
    return found->second ? found->second->code() : nullptr;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<FusedEmitter>> runs_;
};

}  // namespace

FusedIsa fused_isa(FusedIsa isa) { return isa; }

FusedFn fused_code(FusedIsa isa, std::span<const FusedOp> ops) {
  static CodeCache cache;
  return isa == FusedIsa::kNone ? nullptr : cache.get(isa, ops);
}
#else
FusedIsa fused_isa(FusedIsa /*isa*/) { return FusedIsa::kNone; }

FusedFn fused_code(FusedIsa /*isa*/, std::span<const FusedOp> /*ops*/) { return nullptr; }
#endif

}  // namespace tpu::model
