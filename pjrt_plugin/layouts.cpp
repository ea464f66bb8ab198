// How arrays lie in memory: dense, row-major, or with their dimensions in the order that the
// program asks for. Frameworks that cannot ask derive it from the text of the program, which costs
// them more than our compilation of a small one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calls.hpp"
#include "errors.hpp"
#include "objects.hpp"

struct PJRT_Layouts_SerializedLayout {
  std::string bytes;
};

namespace tpu::pjrt {

PJRT_Layouts_MemoryLayout row_major_layout(size_t rank) {
  std::vector<size_t> minor_to_major;
  for (size_t d = rank; d > 0; --d) {
    minor_to_major.push_back(d - 1);
  }
  return {fmt::format("{{{}}}", fmt::join(minor_to_major, ","))};
}

PJRT_Layouts_MemoryLayout layout_of(const ArrayForm* form, size_t rank) {
  return form == nullptr ? row_major_layout(rank)
                         : PJRT_Layouts_MemoryLayout{
                               fmt::format("{{{}}}", fmt::join(form->minor_to_major, ","))};
}

void call(PJRT_Layouts_MemoryLayout_Destroy_Args& args) { delete args.layout; }

void call(PJRT_Layouts_MemoryLayout_Serialize_Args& args) {
  args.serialized_layout = new PJRT_Layouts_SerializedLayout{need(args.layout, "layout").text};
  args.serialized_layout_deleter = [](PJRT_Layouts_SerializedLayout* done) { delete done; };
  args.serialized_bytes = args.serialized_layout->bytes.data();
  args.serialized_bytes_size = args.serialized_layout->bytes.size();
}

void call(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args& args) {
  need(args.client, "client");
  args.layout = new PJRT_Layouts_MemoryLayout(row_major_layout(args.num_dims));
}

void call(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args& args) {
  need(args.topology_description, "topology_description");
  args.layout = new PJRT_Layouts_MemoryLayout(row_major_layout(args.num_dims));
}

void call(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args& args) {
  const PJRT_Buffer& buffer = need(args.buffer, "buffer");
  args.layout =
      new PJRT_Layouts_MemoryLayout(layout_of(buffer.form.get(), buffer.array->shape().size()));
}

}  // namespace tpu::pjrt
