// Builds without Xbyak make no host code.
#include "hart/hart_code.hpp"

namespace tpu::model {

std::unique_ptr<HartCode> HartCode::make(uint8_t /*threshold*/) { return nullptr; }

}  // namespace tpu::model
