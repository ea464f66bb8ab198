// OpSharding, and groups of devices.
#include <algorithm>

#include "import/hlo/device_lists.hpp"
#include "import/hlo/read_parts.hpp"
#include "import/sharding.hpp"

namespace tpu::compiler::hlo {
namespace {

constexpr int64_t kMostGroups = frontend::kMaxCores;

void append(Ints& to, const Ints& more) { to.insert(to.end(), more.begin(), more.end()); }

// `devices` in rows of `size`.
std::vector<Ints> rows(const Ints& devices, int64_t count, int64_t size, const Message& m) {
  if (count < 0 || size < 1 || count > kMostGroups || size > kMostGroups ||
      count * size != std::ssize(devices)) {
    m.fail(std::to_string(count) + " groups of " + std::to_string(size) +
           " devices, the list has " + std::to_string(devices.size()));
  }
  std::vector<Ints> groups;
  for (int64_t g = 0; g < count; ++g) {
    groups.emplace_back(devices.begin() + g * size, devices.begin() + (g + 1) * size);
  }
  return groups;
}

// NamedShardingProto, as tiles. Dimensions that it leaves open for more are not told from others.
class Named {
 public:
  explicit Named(Message message) : m_(std::move(message)) {}

  Sharding read() {
    while (m_.next()) {
      switch (m_.field()) {
        case 1:  // of versions of XLA from a few weeks of 2025 alone
          m_.fail("tuple_shardings, which are not supported; write the program with another XLA");
        case 2:
          mesh_.read(m_.message("MeshProto"));
          break;
        case 3:
          dims_.push_back(parts_of(m_.message("NamedShardingProto.DimensionSharding")));
          break;
        case 5:
          unreduced_.push_back(part(m_.message("AxisRefProto")));
          break;
        case 7:
          manual_.push_back(part(m_.message("AxisRefProto")));
          break;
        default:
          break;
      }
    }
    Sharding s;
    if (!mesh_.has_axes()) {
      s.type = mesh_.listed().size() == 1 ? Sharding::kMaximal : Sharding::kReplicated;
      s.devices = mesh_.listed();
      return s;
    }
    mesh_.cut(all_, m_);
    for (const Parts& parts : dims_) {
      tile(parts, s);
    }
    const auto named = [](int64_t n) { return n != 1; };
    if (manual_.empty() && unreduced_.empty() &&
        std::none_of(s.tiles.begin(), s.tiles.end(), named)) {
      return {};
    }
    if (std::none_of(s.tiles.begin(), s.tiles.end(), named) && is_manual_alone()) {
      s = {};
      s.type = Sharding::kManual;
      return s;
    }
    s.type = Sharding::kOther;
    tail(manual_, Sharding::kManual, s);
    tail(unreduced_, Sharding::kUnreduced, s);
    const Ints rest = mesh_.others(order_);
    if (mesh_.size(rest) > 1) {
      s.tiles.push_back(mesh_.size(rest));
      s.last_tile_types.push_back(Sharding::kReplicated);
    }
    append(order_, rest);
    if (mesh_.listed().empty()) {  // in the short form
      s.iota_dims = mesh_.dims();
      s.iota_order = order_;
      check_iota(s.iota_dims, s.iota_order, m_);
    } else {
      s.devices = mesh_.devices(order_, m_);
    }
    return s;
  }

 private:
  using Parts = std::vector<DeviceMesh::Part>;

  DeviceMesh::Part part(Message m) {
    return all_.emplace_back(DeviceMesh::read_part(std::move(m)));
  }

  Parts parts_of(Message m) {
    Parts parts;
    while (m.next()) {
      if (m.field() == 1) {
        parts.push_back(part(m.message("AxisRefProto")));
      }
    }
    return parts;
  }

  // Along all axes.
  bool is_manual_alone() const {
    Ints factors;
    for (const DeviceMesh::Part& part : manual_) {
      append(factors, mesh_.factors(part));
    }
    return unreduced_.empty() && mesh_.size(mesh_.others(factors)) == 1;
  }

  void tile(const Parts& parts, Sharding& s) {
    Ints factors;
    for (const DeviceMesh::Part& part : parts) {
      append(factors, mesh_.factors(part));
    }
    s.tiles.push_back(mesh_.size(factors));
    append(order_, factors);
  }

  void tail(const Parts& parts, Sharding::Type type, Sharding& s) {
    if (!parts.empty()) {
      tile(parts, s);
      s.last_tile_types.push_back(type);
    }
  }

  Message m_;
  DeviceMesh mesh_;
  std::vector<Parts> dims_;
  Parts unreduced_, manual_, all_;
  Ints order_;  // places in the mesh that are used so far
};

}  // namespace

Ints read_numbers(Message m) {
  Ints numbers;
  while (m.next()) {
    if (m.field() == 1) {
      m.integers(numbers);
    }
  }
  return numbers;
}

namespace {

// A list as an array of numbers.
std::vector<Ints> read_iota_groups(Message m) {
  int64_t count = 0, size = 0;
  Ints dims, order;
  while (m.next()) {
    switch (m.field()) {
      case 1:
        count = m.integer();
        break;
      case 2:
        size = m.integer();
        break;
      case 3:
        m.integers(dims);
        break;
      case 4:
        m.integers(order);
        break;
      default:
        break;
    }
  }
  return rows(iota_list(dims, order, m), count, size, m);
}

// Devices that differ in the named axes alone are a group.
std::vector<Ints> read_mesh_groups(Message m) {
  DeviceMesh mesh;
  std::vector<DeviceMesh::Part> named;
  while (m.next()) {
    if (m.field() == 1) {
      mesh.read(m.message("MeshProto"));
    } else if (m.field() == 2) {
      named.push_back(DeviceMesh::read_part(m.message("AxisRefProto")));
    }
  }
  mesh.cut(named, m);
  Ints inner;
  for (const DeviceMesh::Part& part : named) {
    append(inner, mesh.factors(part));
  }
  Ints order = mesh.others(inner);
  append(order, inner);
  const Ints list = mesh.devices(order, m);
  const int64_t size = mesh.size(inner);
  return rows(list, std::ssize(list) / size, size, m);
}

std::vector<Ints> read_device_list(Message m) {
  std::vector<Ints> groups;
  while (m.next()) {
    if (m.field() == 1) {
      groups.push_back(read_numbers(m.message("ReplicaGroup")));
    } else if (m.field() == 2) {
      groups = read_iota_groups(m.message("IotaReplicaGroupListProto"));
    }
  }
  return groups;
}

}  // namespace

std::vector<Ints> groups_of(const Instruction& at) {
  switch (at.group_field) {
    case 87:
      return read_device_list({at.group_bytes, "CollectiveDeviceListProto"});
    case 92:
      return read_iota_groups({at.group_bytes, "IotaReplicaGroupListProto"});
    case 93:
      return read_mesh_groups({at.group_bytes, "MeshAxesReplicaGroupListProto"});
    default:
      return at.groups;
  }
}

Sharding read_sharding(Message m) {
  Sharding s;
  bool grouped = false;
  int64_t group = 0;
  while (m.next()) {
    switch (m.field()) {
      case 1:
        s.type = m.integer();
        break;
      case 3:
        m.integers(s.tiles);
        break;
      case 4:
        m.integers(s.devices);
        break;
      case 5:
        s.members.push_back(read_sharding(m.message("OpSharding")));
        break;
      case 6:
        s.copies_last = m.flag();
        break;
      case 8:
        m.integers(s.last_tile_types);
        break;
      case 9:
        m.integers(s.iota_dims);
        break;
      case 10:
        m.integers(s.iota_order);
        break;
      case 11:
        grouped = m.flag();
        break;
      case 12:
        group = m.integer();
        break;
      case 13:
        s.group_is_like = m.flag();
        break;
      case 14:
        return Named(m.message("NamedShardingProto")).read();  // the other fields say the same
      default:
        break;
    }
  }
  if (s.type < Sharding::kReplicated || s.type > Sharding::kUnreduced) {
    m.fail("the type " + std::to_string(s.type) + " of a sharding is not known");
  }
  if (s.type == Sharding::kOther && s.devices.empty()) {
    check_iota(s.iota_dims, s.iota_order, m);
  }
  if (grouped) {
    s.group = group;
  }
  return s;
}

}  // namespace tpu::compiler::hlo
