// See atoms.hpp.
#include "import/atoms.hpp"

#include <algorithm>
#include <map>

namespace tpu::compiler::frontend {

namespace {

std::vector<int64_t> prime_factors(int64_t n) {
  std::vector<int64_t> primes;
  for (int64_t p = 2; n > 1; ++p) {
    for (; n % p == 0; n /= p) {
      primes.push_back(p);
    }
  }
  return primes;
}

// What `numbering` says, digit by digit, each of prime size.
std::vector<Numbering> digits(const Numbering& numbering) {
  std::vector<Numbering> all;
  int64_t before = 1;
  for (const int64_t prime : prime_factors(numbering.size)) {
    all.push_back(part_of(numbering, before, prime));
    before *= prime;
  }
  return all;
}

}  // namespace

std::vector<Numbering> numberings(const Mesh& mesh) {
  const int64_t devices = mesh.size();
  std::vector<Numbering> all;
  int64_t behind = devices;
  for (const MeshAxis& axis : mesh.axes) {
    behind /= axis.size;
    Numbering n{std::vector<int64_t>(static_cast<size_t>(devices)), axis.size};
    for (int64_t place = 0; place < devices; ++place) {
      const auto at = static_cast<size_t>(place);
      const int64_t device = mesh.device_ids.empty() ? place : mesh.device_ids[at];
      n.of_device[static_cast<size_t>(device)] = place / behind % axis.size;
    }
    all.push_back(std::move(n));
  }
  return all;
}

Numbering reordered(const Numbering& numbering, const std::vector<int64_t>& order) {
  Numbering out = numbering;
  for (size_t d = 0; d < order.size(); ++d) {
    out.of_device[static_cast<size_t>(order[d])] = numbering.of_device[d];
  }
  return out;
}

Numbering part_of(const Numbering& axis, int64_t before, int64_t size) {
  const int64_t behind = axis.size / before / size;
  Numbering part{axis.of_device, size};
  for (int64_t& place : part.of_device) {
    place = place / behind % size;
  }
  return part;
}

Mesh prime_mesh(const Mesh& mesh) {
  Mesh out{mesh.name, {}, mesh.device_ids};
  for (const MeshAxis& axis : mesh.axes) {
    for (const int64_t prime : prime_factors(axis.size)) {
      out.axes.push_back({"axis" + std::to_string(out.axes.size()), prime});
    }
  }
  return out;
}

void MeshAtoms::adopt(const Mesh& source) {
  mesh_ = {source.name, {}, source.device_ids};
  if (std::is_sorted(source.device_ids.begin(), source.device_ids.end())) {
    mesh_.device_ids.clear();
  }
  coordinates_.clear();
  const std::vector<Numbering> axes = numberings(source);
  for (size_t i = 0; i < axes.size(); ++i) {
    const std::string& name = source.axes[i].name;
    int64_t before = 1;
    for (Numbering& atom : digits(axes[i])) {
      const std::string part = "(" + std::to_string(before) + ")" + std::to_string(atom.size);
      mesh_.axes.push_back({atom.size == axes[i].size ? name : name + ":" + part, atom.size});
      coordinates_.push_back(std::move(atom.of_device));
      before *= atom.size;
    }
  }
}

// Digits of the mesh that are atoms stay those; the others become the atoms of their size that are
// left, in order. Both meshes have the same devices, so there are as many of each prime.
std::vector<int64_t> MeshAtoms::order_of(const Mesh& source) const {
  std::vector<Numbering> all;
  for (const Numbering& axis : numberings(source)) {
    for (Numbering& digit : digits(axis)) {
      all.push_back(std::move(digit));
    }
  }
  std::vector<const Numbering*> of_atom(coordinates_.size());
  const auto give = [&](const Numbering& digit, bool exact) {
    for (size_t a = 0; a < of_atom.size(); ++a) {
      if (of_atom[a] == nullptr &&
          (exact ? coordinates_[a] == digit.of_device : mesh_.axes[a].size == digit.size)) {
        of_atom[a] = &digit;
        return true;
      }
    }
    return false;
  };
  std::vector<const Numbering*> others;
  for (const Numbering& digit : all) {
    if (!give(digit, true)) {
      others.push_back(&digit);
    }
  }
  if (others.empty()) {
    return {};
  }
  for (const Numbering* digit : others) {
    give(*digit, false);
  }
  std::map<std::vector<int64_t>, int64_t> device_at;  // by its coordinates here
  const auto devices = static_cast<size_t>(mesh_.size());
  std::vector<int64_t> order(devices), place(of_atom.size());
  for (size_t d = 0; d < devices; ++d) {
    std::transform(coordinates_.begin(), coordinates_.end(), place.begin(),
                   [&](const auto& of_device) { return of_device[d]; });
    device_at[place] = static_cast<int64_t>(d);
  }
  for (size_t d = 0; d < devices; ++d) {
    std::transform(of_atom.begin(), of_atom.end(), place.begin(),
                   [&](const Numbering* digit) { return digit->of_device[d]; });
    order[d] = device_at.at(place);
  }
  return order;
}

std::optional<std::vector<int>> MeshAtoms::find(const Numbering& numbering) const {
  std::vector<int> atoms;
  for (const Numbering& digit : digits(numbering)) {
    const auto it = std::find(coordinates_.begin(), coordinates_.end(), digit.of_device);
    if (it == coordinates_.end()) {
      return std::nullopt;
    }
    atoms.push_back(static_cast<int>(it - coordinates_.begin()));
  }
  return atoms;
}

}  // namespace tpu::compiler::frontend
