// See gspmd.hpp. A string is "{replicated}", "{manual}", "{unknown}", "{maximal device=N}",
// "{devices=[TILES]LIST TAIL}" or a list of those in braces. TILES are the parts of each dimension,
// then those of the tail; LIST is the devices in row-major order of the tiles, "0,1,3,2", or
// "<=[4,2]T(1,0)": 0 .. 7 as an array 4 x 2, transposed. TAIL: "last_tile_dim_replicate" or
// "last_tile_dims={manual, unreduced, replicated}".
#include "import/gspmd.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <ranges>

#include "ir/error.hpp"

namespace tpu::compiler::frontend {

using bytecode::RawOp;
using bytecode::RawRegion;

namespace {

struct Tiles {
  Dims tiles;
  Dims devices;                   // by place, row-major
  std::vector<std::string> tail;  // the last of `tiles`: "manual", "replicated", "unreduced"
};

class Parser {
 public:
  Parser(std::string_view text, int64_t cores) : whole_(text), rest_(text), cores_(cores) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw Error("the sharding '" + std::string(whole_) + "' " + why);
  }

  bool take(std::string_view word) {
    while (rest_.starts_with(' ')) {
      rest_.remove_prefix(1);
    }
    if (!rest_.starts_with(word)) {
      return false;
    }
    rest_.remove_prefix(word.size());
    return true;
  }
  void need(std::string_view word) {
    if (!take(word)) {
      fail("is not a GSPMD sharding: expected '" + std::string(word) + "'");
    }
  }

  bool at_end() const { return rest_.empty(); }

  // "[2,4]" without its brackets.
  Dims numbers() {
    Dims all;
    do {
      int64_t n = -1;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), n);
      if (error != std::errc() || n < 0 || all.size() > static_cast<size_t>(cores_) + 64) {
        fail("is not a GSPMD sharding: expected a number");
      }
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      all.push_back(n);
    } while (take(","));
    return all;
  }

  Tiles tiles() {
    Tiles out;
    need("[");
    out.tiles = numbers();
    need("]");
    check_count(out.tiles);
    out.devices = take("<=") ? iota() : numbers();
    check_devices(out.devices);
    if (take("last_tile_dim_replicate")) {
      out.tail = {"replicated"};
    } else if (take("last_tile_dims={")) {
      do {
        out.tail.emplace_back(take("manual")      ? "manual"
                              : take("unreduced") ? "unreduced"
                                                  : "replicated");
        if (out.tail.back() == "replicated") {
          need("replicated");
        }
      } while (take(","));
      need("}");
    }
    if (out.tail.size() > out.tiles.size()) {
      fail("has more entries in last_tile_dims than tile dimensions");
    }
    return out;
  }

 private:
  void check_count(const Dims& dims) const {
    int64_t count = 1;
    for (const int64_t n : dims) {
      count = n < 1 || n > cores_ ? cores_ + 1 : count * n;
      if (count > cores_) {
        break;
      }
    }
    if (count != cores_) {
      fail("must have as many tiles as the program has devices: expected " +
           std::to_string(cores_));
    }
  }

  void check_devices(const Dims& devices) const {
    if (!std::ranges::is_permutation(devices, std::views::iota(int64_t{0}, cores_))) {
      fail("must name each device 0.." + std::to_string(cores_ - 1) + " once");
    }
  }

  Dims iota() {
    need("[");
    const Dims dims = numbers();
    need("]");
    check_count(dims);
    Dims order(dims.size());
    std::iota(order.begin(), order.end(), 0);
    if (take("T(")) {
      order = numbers();
      need(")");
      if (!std::ranges::is_permutation(order, std::views::iota(int64_t{0}, std::ssize(dims)))) {
        fail("transposes by what is not a permutation");
      }
    }
    Dims strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i-- > 0;) {
      strides[i] = strides[i + 1] * dims[i + 1];
    }
    Dims devices;
    for (int64_t place = 0; place < cores_; ++place) {
      int64_t device = 0, rest = place;
      for (size_t i = order.size(); i-- > 0;) {
        const auto d = static_cast<size_t>(order[i]);
        device += rest % dims[d] * strides[d];
        rest /= dims[d];
      }
      devices.push_back(device);
    }
    return devices;
  }

  const std::string_view whole_;
  std::string_view rest_;
  const int64_t cores_;
};

// The tiles as a mesh, with an axis a dimension.
Mesh mesh_of(const Tiles& t) {
  Mesh mesh;
  for (const int64_t n : t.tiles) {
    mesh.axes.push_back({"tile" + std::to_string(mesh.axes.size()), n});
  }
  mesh.device_ids = t.devices;
  return mesh;
}

// Atoms of each entry of the tiles but those of copies, which may be in any order.
std::optional<std::vector<std::vector<int>>> find_all(const Tiles& t, const MeshAtoms& atoms,
                                                      const std::vector<int64_t>& order = {}) {
  std::vector<Numbering> axes;
  for (const Numbering& axis : numberings(mesh_of(t))) {
    axes.push_back(reordered(axis, order));
  }
  const size_t rank = axes.size() - t.tail.size();
  std::vector<std::vector<int>> all(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    if (i < rank || t.tail[i - rank] != "replicated") {
      auto found = atoms.find(axes[i]);
      if (!found) {
        return std::nullopt;
      }
      all[i] = std::move(*found);
    }
  }
  return all;
}

// The order of device ids is taken if it serves. Any part of a tile list can be said in this
// language.
std::optional<std::vector<std::vector<int>>> adopt(const Tiles& t, int64_t cores,
                                                   MeshAtoms& atoms) {
  if (!atoms.known()) {
    adopt_devices(cores, atoms);
    if (!find_all(t, atoms)) {
      atoms.adopt(prime_mesh(mesh_of(t)));
    }
  }
  return find_all(t, atoms);
}

void read_tiles(Parser& parser, size_t rank, int64_t cores, MeshAtoms& atoms, GspmdSharding& out) {
  const Tiles t = parser.tiles();
  if (t.tiles.size() - t.tail.size() != rank) {
    parser.fail("has " + std::to_string(t.tiles.size() - t.tail.size()) +
                " dimensions, the array " + std::to_string(rank));
  }
  auto found = adopt(t, cores, atoms);
  if (!found) {
    out.attrs.sharding.order = atoms.order_of(mesh_of(t));
    found = find_all(t, atoms, out.attrs.sharding.order);
  }
  if (!found) {
    parser.fail("shards by sizes that are not products of the mesh's prime factors");
  }
  auto& cut = out.attrs.sharding.dim_axes;
  cut.assign(found->begin(), found->begin() + static_cast<ptrdiff_t>(rank));
  std::vector<int>& unreduced = out.attrs.sharding.unreduced;
  for (size_t i = rank; i < found->size(); ++i) {
    std::vector<int>& axes = t.tail[i - rank] == "unreduced" ? unreduced : out.manual_axes;
    axes.insert(axes.end(), (*found)[i].begin(), (*found)[i].end());
  }
  std::sort(unreduced.begin(), unreduced.end());
  if (!out.attrs.sharding.is_reordered(atoms.mesh()) && out.manual_axes.empty()) {
    out.attrs.sharding.order.clear();
  }
  if (!out.attrs.sharding.is_cut()) {
    cut.clear();
  }
}

}  // namespace

void adopt_devices(int64_t cores, MeshAtoms& atoms) {
  if (!atoms.known()) {
    atoms.adopt(prime_mesh({"", {{"devices", cores}}, {}}));
  }
}

std::optional<int64_t> gspmd_device(std::string_view text) {
  constexpr std::string_view kHead = "{maximal device=";
  int64_t device = 0;
  if (!text.starts_with(kHead)) {
    return std::nullopt;
  }
  text.remove_prefix(kHead.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), device);
  return error == std::errc() && device >= 0 ? std::optional(device) : std::nullopt;
}

GspmdSharding read_gspmd(std::string_view text, size_t rank, int64_t cores, MeshAtoms& atoms) {
  GspmdSharding out;
  Parser parser(text, cores);
  parser.need("{");
  const bool list = parser.take("{");
  if (cores == 1 || parser.take("replicated") || parser.take("maximal device=")) {
    return out;  // also what one device has: the others may have it too
  }
  out.manual = parser.take("manual");
  if (parser.take("unknown")) {
    out.unknown = !parser.take("shard_as ") && !parser.take("shard_like ");
    if (!out.unknown) {
      out.attrs.group = parser.numbers()[0];
      out.attrs.open.assign(rank, true);
    }
    return out;
  }
  if (out.manual) {
    return out;
  }
  parser.need("devices=");
  read_tiles(parser, rank, cores, atoms, out);
  parser.need(list ? "}}" : "}");
  if (!parser.at_end()) {
    parser.fail("continues after its end");
  }
  return out;
}

std::string_view custom_call_target(const Tables& tables, const RawOp& op) {
  return op.name.starts_with("custom_call_v") ? tables.property_text(op, "call_target_name") : "";
}

GspmdShardMaps::GspmdShardMaps(const Tables& tables, const RawOp& module) {
  for (const RawRegion& region : module.regions) {
    scan(tables, region);
  }
}

void GspmdShardMaps::scan(const Tables& tables, const RawRegion& region) {
  for (const RawOp& op : region.ops) {
    for (const RawRegion& inner : op.regions) {
      scan(tables, inner);
    }
    const std::string_view target = custom_call_target(tables, op);
    if (target != kGspmdEnter && target != kGspmdLeave) {
      std::ranges::for_each(op.operands, [this](uint32_t value) { ++readers_[value]; });
    }
    if (target.empty() || op.operands.size() != 1 || op.results.size() != 1) {
      continue;
    }
    const auto constraint = constraints_.find(op.operands[0]);
    const RawOp* before = constraint == constraints_.end() ? nullptr : constraint->second;
    if (target == kGspmdConstraint) {
      constraints_[op.results[0]] = &op;
    } else if (target == kGspmdEnter) {
      entries_[op.results[0]] = &op;
      belongs_.insert(before);
    } else if (target == kGspmdLeave) {
      exits_[before == nullptr ? op.operands[0] : before->operands[0]].push_back(&op);
      belongs_.insert(before);
    }
  }
}

bool GspmdShardMaps::belongs_alone(const RawOp& sharding) const {
  return belongs(sharding) && !readers_.contains(sharding.results.at(0));
}

const RawOp* GspmdShardMaps::entry(uint32_t value) const {
  const auto it = entries_.find(value);
  return it == entries_.end() ? nullptr : it->second;
}

std::vector<const RawOp*> GspmdShardMaps::exits(uint32_t value) const {
  const auto it = exits_.find(value);
  return it == exits_.end() ? std::vector<const RawOp*>() : it->second;
}

const RawOp* GspmdShardMaps::sharding_of(const RawOp& entry) const {
  const auto it = constraints_.find(entry.operands[0]);
  return it == constraints_.end() ? nullptr : it->second;
}

}  // namespace tpu::compiler::frontend
