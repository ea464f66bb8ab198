// Lists of devices as XLA says them shortly: numbers as an array that is transposed, and axes of a
// mesh. Private to the import.
#pragma once

#include <cstddef>
#include <vector>

#include "import/hlo/message.hpp"

namespace tpu::compiler::hlo {

using Ints = std::vector<int64_t>;

// True of 0 .. count-1 in any order.
bool is_order(const Ints& numbers, size_t count);

// 0 .. n-1 as an array of `dims`, transposed by `order` (empty: not), in row-major order. Throws
// through `message` unless it is such a list of bounded length.
Ints iota_list(const Ints& dims, const Ints& order, const Message& message);
// Throws through `message` what iota_list() would. Gives the number of devices.
int64_t check_iota(const Ints& dims, const Ints& order, const Message& message);

// MeshProto: a mesh whose axes are cut where parts of them are named.
class DeviceMesh {
 public:
  struct Part {
    int64_t axis = 0, before = 1, size = 0;  // size 0: the whole axis
  };

  static Part read_part(Message axis_ref);
  void read(Message mesh);
  // Cuts the axes for all parts that will be asked for. Throws through `message`.
  void cut(const std::vector<Part>& parts, const Message& message);

  bool has_axes() const { return !axes_.empty(); }
  const Ints& listed() const { return devices_; }  // empty: 0, 1, ..
  const Ints& dims() const { return dims_; }       // factors of the axes, major first
  Ints factors(const Part& part) const;            // places in dims()
  int64_t size(const Ints& factors) const;         // their product
  // All devices, major by the first of `order`, places in dims().
  Ints devices(const Ints& order, const Message& message) const;
  Ints others(const Ints& than) const;  // places that are not in `than`

 private:
  Ints axes_, devices_, dims_;
  std::vector<size_t> first_;  // of each axis in dims_, and the end
};

}  // namespace tpu::compiler::hlo
