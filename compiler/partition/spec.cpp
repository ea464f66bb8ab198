// See spec.hpp.
#include "partition/spec.hpp"

#include <algorithm>
#include <string_view>

namespace tpu::compiler {

Spec spec_of(const Sharding& sharding, const Type& type) {
  return sharding.dim_axes.empty() ? Spec(type.dims.size()) : sharding.dim_axes;
}

Sharding sharding_of(const Spec& spec, const Axes& unreduced) {
  return {is_whole(spec) ? Spec{} : spec, unreduced, {}};
}

bool is_whole(const Spec& spec) {
  return std::all_of(spec.begin(), spec.end(), [](const Axes& axes) { return axes.empty(); });
}

bool is_prefix(const Axes& a, const Axes& b) {
  return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
}

bool holds(const Axes& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

bool holds_all(const Axes& axes, const Axes& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](int axis) { return holds(axes, axis); });
}

bool is_disjoint(const Axes& a, const Axes& b) {
  return std::none_of(a.begin(), a.end(), [&](int axis) { return holds(b, axis); });
}

Axes all_axes(const Spec& spec) {
  Axes all;
  for (const Axes& axes : spec) {
    append(all, axes);
  }
  std::sort(all.begin(), all.end());
  return all;
}

Axes tail(const Axes& axes, size_t from) {
  return {axes.begin() + static_cast<ptrdiff_t>(from), axes.end()};
}

void append(Axes& to, const Axes& axes) { to.insert(to.end(), axes.begin(), axes.end()); }

// Parts have the name of their axis, ":", and which of its digits they are (import/atoms.hpp), and
// lie side by side in the mesh.
Axes whole_axes(const Mesh& mesh, const Axes& axes) {
  const auto own = [&](size_t axis) {
    const std::string& name = mesh.axes[axis].name;
    return std::string_view(name).substr(0, name.find(':'));
  };
  Axes out;
  while (out.size() < axes.size()) {
    auto next = static_cast<size_t>(axes[out.size()]);
    const std::string_view name = own(next);
    Axes parts;
    while (next > 0 && own(next - 1) == name) {
      --next;
    }
    for (; next < mesh.axes.size() && own(next) == name; ++next) {
      parts.push_back(static_cast<int>(next));
    }
    if (!is_prefix(parts, tail(axes, out.size()))) {
      break;
    }
    append(out, parts);
  }
  return out;
}

Spec whole_axes(const Mesh& mesh, Spec spec) {
  for (Axes& axes : spec) {
    axes = whole_axes(mesh, axes);
  }
  return spec;
}

int64_t axis_size(const Mesh& mesh, int axis) {
  return mesh.axes.at(static_cast<size_t>(axis)).size;
}

int64_t num_parts(const Mesh& mesh, const Axes& axes) {
  int64_t n = 1;
  for (const int axis : axes) {
    n *= axis_size(mesh, axis);
  }
  return n;
}

Type local_part(const Mesh& mesh, Type whole, const Spec& spec) {
  for (size_t d = 0; d < spec.size(); ++d) {
    whole.dims[d] /= num_parts(mesh, spec[d]);
  }
  return whole;
}

bool can_cut(const Mesh& mesh, const Type& whole, const Spec& spec) {
  Axes used;
  for (size_t d = 0; d < spec.size(); ++d) {
    for (const int axis : spec[d]) {
      if (holds(used, axis)) {
        return false;
      }
      used.push_back(axis);
    }
    if (whole.dims[d] % num_parts(mesh, spec[d]) != 0) {
      return false;
    }
  }
  return true;
}

std::vector<Axes> project(const Mesh& mesh, const FactorRule& rule, const DimFactors& tensor,
                          const Spec& spec) {
  std::vector<Axes> out(rule.factors.size());
  for (size_t d = 0; d < tensor.size(); ++d) {
    auto axis = spec[d].begin();
    for (const int f : tensor[d]) {
      const auto factor = static_cast<size_t>(f);
      int64_t rest = rule.factors[factor].size;
      while (axis != spec[d].end() && rest % axis_size(mesh, *axis) == 0) {
        rest /= axis_size(mesh, *axis);
        out[factor].push_back(*axis++);
      }
      if (rest != 1) {
        break;
      }
    }
  }
  return out;
}

Spec lift(const Mesh& mesh, const FactorRule& rule, const DimFactors& tensor,
          const std::vector<Axes>& axes) {
  Spec out(tensor.size());
  for (size_t d = 0; d < tensor.size(); ++d) {
    for (const int f : tensor[d]) {
      const auto factor = static_cast<size_t>(f);
      append(out[d], axes[factor]);
      if (num_parts(mesh, axes[factor]) != rule.factors[factor].size) {
        break;
      }
    }
  }
  return out;
}

int64_t moved_bytes(const Mesh& mesh, int64_t bytes, const Spec& from, const Spec& to) {
  bool stays = true, exchanged = true;
  int64_t kept = 1, parts = 1;
  Axes all;
  for (const Axes& axes : to) {
    append(all, axes);
  }
  for (size_t d = 0; d < from.size(); ++d) {
    stays = stays && is_prefix(from[d], to[d]);
    size_t common = 0;
    for (const int axis : from[d]) {
      exchanged = exchanged && holds(all, axis);
      common += common < to[d].size() && from[d][common] == to[d][common] ? 1 : 0;
    }
    kept *= num_parts(mesh, {from[d].begin(), from[d].begin() + static_cast<ptrdiff_t>(common)});
    parts *= num_parts(mesh, from[d]);
  }
  return stays ? 0 : bytes / (exchanged ? parts : kept);
}

FactorRule same_rule(const Type& type, size_t tensors) {
  FactorRule rule;
  DimFactors dims;
  for (const int64_t size : type.dims) {
    dims.push_back({static_cast<int>(rule.factors.size())});
    rule.factors.push_back({size, FactorKind::kPass});
  }
  rule.operands.assign(tensors, dims);
  return rule;
}

}  // namespace tpu::compiler
