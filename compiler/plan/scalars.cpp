#include "plan/scalars.hpp"

namespace tpu::compiler {

std::vector<ScalarPlace> scalar_places(Residency& memory, const std::vector<NestAccess>& from) {
  std::vector<ScalarPlace> out;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].value != nullptr) {
      const int64_t bytes = elem_bytes(from[i].value->type.elem);
      const int64_t offset = from[i].view.offset;
      const spec::Addr at = place_of(memory.at(from[i].value), offset * bytes);
      out.push_back({i, from[i].value, offset, at, bytes});
    }
  }
  return out;
}

}  // namespace tpu::compiler
