// See device_lists.hpp.
#include "import/hlo/device_lists.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "import/sharding.hpp"

namespace tpu::compiler::hlo {
namespace {

constexpr int64_t kMostDevices = frontend::kMaxCores;
constexpr size_t kMostDims = 64, kMostParts = 256;  // those of one device included

}  // namespace

bool is_order(const Ints& numbers, size_t count) {
  std::vector<bool> found(count);
  for (const int64_t n : numbers) {
    if (n < 0 || static_cast<size_t>(n) >= count || found[static_cast<size_t>(n)]) {
      return false;
    }
    found[static_cast<size_t>(n)] = true;
  }
  return numbers.size() == count;
}

int64_t check_iota(const Ints& dims, const Ints& order, const Message& m) {
  int64_t count = 1;
  for (const int64_t d : dims) {
    count = d < 1 || d > kMostDevices ? kMostDevices + 1 : count * d;
    if (count > kMostDevices || dims.size() > kMostDims) {
      m.fail("a list of devices with impossible dimensions");
    }
  }
  if (!order.empty() && !is_order(order, dims.size())) {
    m.fail("a list of devices is transposed by what is not a permutation");
  }
  return count;
}

Ints iota_list(const Ints& dims, const Ints& order, const Message& m) {
  const int64_t count = check_iota(dims, order, m);
  Ints turned = order;
  if (order.empty()) {
    turned.resize(dims.size());
    std::iota(turned.begin(), turned.end(), 0);
  }
  Ints strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * dims[i];
  }
  Ints list;
  for (int64_t place = 0; place < count; ++place) {
    int64_t device = 0, rest = place;
    for (size_t i = turned.size(); i-- > 0;) {
      const auto d = static_cast<size_t>(turned[i]);
      device += rest % dims[d] * strides[d];
      rest /= dims[d];
    }
    list.push_back(device);
  }
  return list;
}

DeviceMesh::Part DeviceMesh::read_part(Message m) {
  Part part;
  while (m.next()) {
    if (m.field() == 1) {
      part.axis = m.integer();
    } else if (m.field() == 2) {
      Message inner = m.message("AxisRefProto.SubAxis");
      while (inner.next()) {
        if (inner.field() == 1) {
          part.before = inner.integer();
        } else if (inner.field() == 2) {
          part.size = inner.integer();
        }
      }
    }
  }
  return part;
}

void DeviceMesh::read(Message m) {
  while (m.next()) {
    if (m.field() == 1) {
      Message axis = m.message("MeshProto.MeshAxis");
      axes_.push_back(0);
      while (axis.next()) {
        if (axis.field() == 2) {
          axes_.back() = axis.integer();
        }
      }
    } else if (m.field() == 2) {
      m.integers(devices_);
    }
  }
}

void DeviceMesh::cut(const std::vector<Part>& parts, const Message& m) {
  if (axes_.size() > kMostDims || parts.size() > kMostParts) {
    m.fail("a mesh of " + std::to_string(axes_.size()) + " axes, of which " +
           std::to_string(parts.size()) + " parts are named; the most are " +
           std::to_string(kMostDims) + " and " + std::to_string(kMostParts));
  }
  for (const Part& part : parts) {
    if (part.axis < 0 || part.axis >= std::ssize(axes_)) {
      m.fail("axis " + std::to_string(part.axis) + " of a mesh that has " +
             std::to_string(axes_.size()));
    }
    if (part.before < 1 || part.before > kMostDevices || part.size < 0 ||
        part.size > kMostDevices) {
      m.fail("an impossible part of an axis");
    }
  }
  for (size_t a = 0; a < axes_.size(); ++a) {
    Ints cuts = {1, axes_[a]};
    for (const Part& part : parts) {
      if (part.axis == static_cast<int64_t>(a) && part.size != 0) {
        cuts.push_back(part.before);
        cuts.push_back(part.before * part.size);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    first_.push_back(dims_.size());
    if (cuts.front() < 1 || cuts.back() != axes_[a]) {
      m.fail("a part of an axis is larger than the axis");
    }
    for (size_t i = 1; i < cuts.size(); ++i) {
      if (cuts[i] % cuts[i - 1] != 0) {
        m.fail("a part of an axis does not divide it");
      }
      dims_.push_back(cuts[i] / cuts[i - 1]);
    }
  }
  first_.push_back(dims_.size());
}

Ints DeviceMesh::factors(const Part& part) const {
  const auto a = static_cast<size_t>(part.axis);
  const int64_t end = part.size == 0 ? axes_[a] : part.before * part.size;
  Ints places;
  int64_t before = 1;
  for (size_t d = first_[a]; d < first_[a + 1] && before < end; before *= dims_[d++]) {
    if (before >= part.before) {
      places.push_back(static_cast<int64_t>(d));
    }
  }
  return places;
}

int64_t DeviceMesh::size(const Ints& factors) const {
  int64_t size = 1;
  for (const int64_t place : factors) {
    size *= dims_[static_cast<size_t>(place)];
  }
  return size;
}

Ints DeviceMesh::devices(const Ints& order, const Message& m) const {
  Ints list = iota_list(dims_, order, m);
  if (devices_.empty()) {
    return list;
  }
  if (devices_.size() != list.size()) {
    m.fail("a mesh lists " + std::to_string(devices_.size()) + " devices, its axes count " +
           std::to_string(list.size()));
  }
  for (int64_t& place : list) {
    place = devices_[static_cast<size_t>(place)];
  }
  return list;
}

Ints DeviceMesh::others(const Ints& than) const {
  Ints places;
  for (int64_t d = 0; d < std::ssize(dims_); ++d) {
    if (std::find(than.begin(), than.end(), d) == than.end()) {
      places.push_back(d);
    }
  }
  return places;
}

}  // namespace tpu::compiler::hlo
