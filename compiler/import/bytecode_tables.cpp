// Decodes one entry of the attribute or type section: fields by (dialect, code).
// Each entry is decoded by itself and keeps indices, so references may go forwards and there is no
// recursion.
#include "import/bytecode_tables.hpp"

#include "import/codes.hpp"

namespace tpu::compiler::bytecode {
namespace {

class EntryReader {
 public:
  EntryReader(Cursor cursor, const RawModule& module, size_t num_attrs, size_t num_types)
      : c_(cursor), module_(module), num_attrs_(num_attrs), num_types_(num_types) {}

  RawType type(Dialect dialect, uint32_t code) {
    RawType t;
    t.dialect = dialect;
    t.code = code;
    const bool known = dialect == Dialect::kBuiltin     ? builtin_type_fields(t)
                       : dialect == Dialect::kVhlo      ? vhlo_type_fields(t)
                       : dialect == Dialect::kStablehlo ? code == stablehlo_type::kToken
                                                        : false;
    finish(known, t.code);
    return t;
  }

  RawAttr attr(Dialect dialect, uint32_t code) {
    RawAttr a;
    a.dialect = dialect;
    a.code = code;
    bool known = false;
    if (dialect == Dialect::kBuiltin) {
      known = builtin_location_fields(a) || builtin_attr_fields(a);
    } else if (dialect == Dialect::kVhlo) {
      known = vhlo_attr_fields(a);
    } else if (dialect == Dialect::kSdy) {
      known = sdy_attr_fields(a);
    } else if (dialect == Dialect::kStablehlo) {
      known = stablehlo_attr_fields(a);
    }
    finish(known, a.code);
    return a;
  }

 private:
  // Unknown codes are kept as unknown: they matter only if an op needs them.
  void finish(bool known, uint32_t& code) {
    if (!known) {
      code = kNone;
    } else if (!c_.at_end()) {
      c_.fail("an entry with code " + std::to_string(code) + " has bytes left over");
    }
  }

  uint32_t attr_index() { return c_.index(num_attrs_, "attributes"); }
  uint32_t type_index() { return c_.index(num_types_, "types"); }
  std::string_view string() { return module_.strings[c_.index(module_.strings.size(), "strings")]; }

  void attr_list(std::vector<uint32_t>& out) {
    for (size_t n = c_.count(); n > 0; --n) {
      out.push_back(attr_index());
    }
  }
  void type_list(std::vector<uint32_t>& out) {
    for (size_t n = c_.count(); n > 0; --n) {
      out.push_back(type_index());
    }
  }
  void int_list(std::vector<int64_t>& out) {
    for (size_t n = c_.count(); n > 0; --n) {
      out.push_back(c_.svarint());
    }
  }
  void pair_list(RawAttr& a) {
    for (size_t n = c_.count(); n > 0; --n) {
      const uint32_t name = attr_index();
      a.pairs.emplace_back(name, attr_index());
    }
  }
  void blob(RawAttr& a) {
    const size_t size = c_.count();
    a.blob = c_.take(size);
  }
  void optional_attr(RawAttr& a) {
    bool present = false;
    const uint64_t index = c_.flagged(present);
    if (present) {
      if (index >= num_attrs_) {
        c_.fail("optional attribute index out of range");
      }
      a.attrs.push_back(static_cast<uint32_t>(index));
    }
  }

  // Bits of an integer or float of the type: 8 bits or fewer are one raw byte.
  bool number(RawAttr& a) {
    a.type = type_index();
    const RawType& t = module_.types[a.type];
    const uint32_t bits = number_bits(t);
    if (bits == 0 || bits > 64) {
      return false;
    }
    a.ints.push_back(bits <= 8 ? static_cast<int8_t>(c_.byte()) : c_.svarint());
    return true;
  }

  static uint32_t number_bits(const RawType& t) {
    if (t.dialect == Dialect::kBuiltin) {
      switch (t.code) {
        case builtin_type::kInteger:
          return t.width;
        case builtin_type::kIndex:
        case builtin_type::kF64:
          return 64;
        case builtin_type::kF32:
          return 32;
        case builtin_type::kBf16:
        case builtin_type::kF16:
          return 16;
        default:
          return 0;
      }
    }
    if (t.dialect != Dialect::kVhlo) {
      return 0;
    }
    switch (t.code) {
      case vhlo_type::kF32:
      case vhlo_type::kI32:
      case vhlo_type::kU32:
      case vhlo_type::kTf32:
        return 32;
      case vhlo_type::kBf16:
      case vhlo_type::kF16:
      case vhlo_type::kI16:
      case vhlo_type::kU16:
        return 16;
      case vhlo_type::kF64:
      case vhlo_type::kI64:
      case vhlo_type::kU64:
      case vhlo_type::kIndex:
        return 64;
      case vhlo_type::kI1:
      case vhlo_type::kI2:
      case vhlo_type::kU2:
      case vhlo_type::kI4:
      case vhlo_type::kU4:
      case vhlo_type::kI8:
      case vhlo_type::kU8:
        return 8;
      default:
        return 0;
    }
  }

  bool builtin_type_fields(RawType& t) {
    switch (t.code) {
      case builtin_type::kInteger: {
        const uint64_t v = c_.varint();
        t.width = static_cast<uint32_t>(v >> 2);
        t.signedness = static_cast<uint32_t>(v & 3);
        return true;
      }
      case builtin_type::kIndex:
      case builtin_type::kBf16:
      case builtin_type::kF16:
      case builtin_type::kF32:
      case builtin_type::kF64:
      case builtin_type::kNone:
        return true;
      case builtin_type::kComplex:
        t.types.push_back(type_index());
        return true;
      case builtin_type::kTensorEncoding:
        attr_index();
        [[fallthrough]];
      case builtin_type::kTensor:
        int_list(t.shape);
        t.types.push_back(type_index());
        return true;
      case builtin_type::kFunction:
        type_list(t.types);
        t.num_inputs = t.types.size();
        type_list(t.types);
        return true;
      case builtin_type::kTuple:
        type_list(t.types);
        return true;
      default:
        return false;
    }
  }

  bool vhlo_type_fields(RawType& t) {
    switch (t.code) {
      case vhlo_type::kComplex:
      case vhlo_type::kUnranked:
        t.types.push_back(type_index());
        return true;
      case vhlo_type::kFunction:
        type_list(t.types);
        t.num_inputs = t.types.size();
        type_list(t.types);
        return true;
      case vhlo_type::kTensorEncoding:
        attr_index();
        [[fallthrough]];
      case vhlo_type::kTensor:
        int_list(t.shape);
        t.types.push_back(type_index());
        return true;
      case vhlo_type::kTuple:
        type_list(t.types);
        return true;
      default:
        // Everything else up to f8E8M0FNU is a name alone, except the quantized types.
        return t.code <= vhlo_type::kF8E8M0 && t.code != 24 && t.code != 30;
    }
  }

  bool builtin_location_fields(RawAttr& a) {
    switch (a.code) {
      case builtin_attr::kCallSiteLoc:
      case builtin_attr::kNameLoc:
        a.attrs = {attr_index()};
        a.attrs.push_back(attr_index());
        return true;
      case builtin_attr::kFileLoc:
        a.attrs = {attr_index()};
        a.ints = {static_cast<int64_t>(c_.varint())};
        a.ints.push_back(static_cast<int64_t>(c_.varint()));
        return true;
      case builtin_attr::kFileRangeLoc:
        a.attrs = {attr_index()};
        for (size_t n = c_.count(); n > 0; --n) {
          a.ints.push_back(static_cast<int64_t>(c_.varint()));
        }
        return true;
      case builtin_attr::kFusedLocMetadata:
        attr_list(a.attrs);
        attr_index();
        return true;
      case builtin_attr::kFusedLoc:
        attr_list(a.attrs);
        return true;
      case builtin_attr::kUnknownLoc:
        return true;
      default:
        return false;
    }
  }

  bool builtin_attr_fields(RawAttr& a) {
    switch (a.code) {
      case builtin_attr::kArray:
        attr_list(a.attrs);
        return true;
      case builtin_attr::kDictionary:
        pair_list(a);
        return true;
      case builtin_attr::kString:
        a.text = string();
        return true;
      case builtin_attr::kStringWithType:
        a.text = string();
        a.type = type_index();
        return true;
      case builtin_attr::kSymbol:
        a.attrs = {attr_index()};
        return true;
      case builtin_attr::kType:
        a.type = type_index();
        return true;
      case builtin_attr::kUnit:
        return true;
      case builtin_attr::kInteger:
      case builtin_attr::kFloat:
        return number(a);
      case builtin_attr::kDenseArray:
        a.type = type_index();
        a.ints = {static_cast<int64_t>(c_.varint())};
        blob(a);
        return true;
      case builtin_attr::kDense:
        a.type = type_index();
        blob(a);
        return true;
      default:
        return false;
    }
  }

  bool vhlo_attr_fields(RawAttr& a) {
    switch (a.code) {
      case vhlo_attr::kArray:
        attr_list(a.attrs);
        return true;
      case vhlo_attr::kDictionary:
        pair_list(a);
        return true;
      case vhlo_attr::kBool:
      case vhlo_attr::kCompareDirection:
      case vhlo_attr::kCompareType:
      case vhlo_attr::kApiVersion:
      case vhlo_attr::kFftType:
      case vhlo_attr::kPrecision:
      case vhlo_attr::kRngAlgorithm:
      case vhlo_attr::kRngDistribution:
      case vhlo_attr::kTransposeMode:
      case vhlo_attr::kAccuracyMode:
        a.ints = {static_cast<int64_t>(c_.varint())};
        return true;
      case vhlo_attr::kFloat:
      case vhlo_attr::kInteger:
        return number(a);
      case vhlo_attr::kOutputAlias:
        int_list(a.ints);
        c_.svarint();
        int_list(a.ints);
        return true;
      case vhlo_attr::kString:
        a.text = string();
        return true;
      case vhlo_attr::kTensor:
        a.type = type_index();
        blob(a);
        return true;
      case vhlo_attr::kType:
        a.type = type_index();
        return true;
      case vhlo_attr::kBounds:
        int_list(a.ints);
        return true;
      case vhlo_attr::kResultAccuracy:
        for (int i = 0; i < 3; ++i) {
          a.ints.push_back(c_.svarint());
        }
        a.attrs = {attr_index()};
        return true;
      default:
        return false;
    }
  }

  // Fields in order: 's' an integer, 'v' an enumeration, 'b' a truth, 't' a type, 'n' a name,
  // 'a' an attribute, 'o' one or none, 'l' integers and 'L' attributes behind their number.
  static std::string_view stablehlo_form(uint32_t code) {
    static constexpr auto kForms = std::to_array<std::string_view>(
        {"",       "ss", "v", "v",   "sslsslssl", "llll", "v",    "llllls", "v",  "v", "v",
         "llllls", "v",  "l", "lsl", "tttsssb",   "v",    "sssa", "aL",     "ss", "no"});
    return code < kForms.size() ? kForms[code] : "";
  }

  bool stablehlo_attr_fields(RawAttr& a) {
    const std::string_view form = stablehlo_form(a.code);
    for (const char field : form) {
      if (field == 'l') {
        const size_t n = c_.count();
        a.ints.push_back(static_cast<int64_t>(n));
        for (size_t i = 0; i < n; ++i) {
          a.ints.push_back(c_.svarint());
        }
      } else if (field == 'L') {
        attr_list(a.attrs);
      } else if (field == 'n') {
        a.text = string();
      } else if (field == 'o' && c_.byte() == 0) {
        continue;
      } else if (field == 'a' || field == 'o') {
        a.attrs.push_back(attr_index());
      } else {
        a.ints.push_back(field == 's'   ? c_.svarint()
                         : field == 'v' ? static_cast<int64_t>(c_.varint())
                         : field == 't' ? type_index()
                                        : c_.byte());
      }
    }
    return !form.empty();
  }

  bool sdy_attr_fields(RawAttr& a) {
    switch (a.code) {
      case sdy_attr::kManualAxes:
      case sdy_attr::kPerValue:
      case sdy_attr::kPerValueAlso:
        attr_list(a.attrs);
        return true;
      case sdy_attr::kMeshAxis:
        a.text = string();
        a.ints = {c_.svarint()};
        return true;
      case sdy_attr::kMesh:
        attr_list(a.attrs);
        int_list(a.ints);
        return true;
      case sdy_attr::kSubAxis:
        a.ints = {c_.svarint()};
        a.ints.push_back(c_.svarint());
        return true;
      case sdy_attr::kAxisRef:
        a.text = string();
        optional_attr(a);
        return true;
      case sdy_attr::kDimSharding: {
        attr_list(a.attrs);
        a.ints = {c_.byte()};
        bool has_priority = false;
        c_.flagged(has_priority);
        return true;
      }
      case sdy_attr::kDimMapping:
        int_list(a.ints);
        return true;
      case sdy_attr::kTensorMapping:
        attr_list(a.attrs);
        return true;
      case sdy_attr::kShardingRule:
        return sharding_rule(a);
      case sdy_attr::kTensorSharding:
      case sdy_attr::kTensorShardingUnreduced:
      case sdy_attr::kTensorShardingReduction:
        return tensor_sharding(a);
      default:
        return false;
    }
  }

  // attrs: of operands, of results; ints: how many of both, how many sizes and how many loops that
  // are summed over, the sizes, these loops, and those along which nothing may be cut.
  bool sharding_rule(RawAttr& a) {
    std::vector<int64_t> sizes, summed, blocked, permuted;
    int_list(sizes);
    attr_list(a.attrs);
    const size_t operands = a.attrs.size();
    attr_list(a.attrs);
    int_list(summed);
    int_list(blocked);   // need_replication
    int_list(permuted);  // may be cut: the framework moves what is in other parts
    int_list(blocked);   // blocked_propagation
    c_.byte();           // whether the user wrote it
    a.ints = {static_cast<int64_t>(operands), static_cast<int64_t>(a.attrs.size() - operands),
              static_cast<int64_t>(sizes.size()), static_cast<int64_t>(summed.size())};
    for (const auto* list : {&sizes, &summed, &blocked}) {
      a.ints.insert(a.ints.end(), list->begin(), list->end());
    }
    return true;
  }

  // attrs: mesh, dimensions, replicated axes, unreduced ones; ints: the numbers of the three.
  bool tensor_sharding(RawAttr& a) {
    a.attrs = {attr_index()};
    size_t before = a.attrs.size();
    for (int list = 0; list < (a.code == sdy_attr::kTensorSharding ? 2 : 3); ++list) {
      attr_list(a.attrs);
      a.ints.push_back(static_cast<int64_t>(a.attrs.size() - before));
      before = a.attrs.size();
    }
    if (a.code == sdy_attr::kTensorShardingReduction) {
      a.ints.push_back(c_.svarint());  // how the terms are combined
    }
    return true;
  }

  Cursor c_;
  const RawModule& module_;
  size_t num_attrs_;
  size_t num_types_;
};

}  // namespace

RawType read_type_entry(Cursor cursor, Dialect dialect, uint32_t code, const RawModule& module,
                        size_t num_attrs, size_t num_types) {
  return EntryReader(cursor, module, num_attrs, num_types).type(dialect, code);
}

RawAttr read_attr_entry(Cursor cursor, Dialect dialect, uint32_t code, const RawModule& module,
                        size_t num_attrs, size_t num_types) {
  return EntryReader(cursor, module, num_attrs, num_types).attr(dialect, code);
}

}  // namespace tpu::compiler::bytecode
