// The converter from raw VHLO ops to graph ops: functions, regions and ops; what its parts know is
// in import_parts.hpp. Private to the import; see normalise.hpp for the entry.
#pragma once

#include <string>
#include <vector>

#include "import/import_parts.hpp"

namespace tpu::compiler::frontend {

// In front of the parts, which refer to it.
struct ImportOwner {
  ImportState whole;
};

class Normaliser final : private ImportOwner, private ImportPart, private RegionConverter {
 public:
  Normaliser(const bytecode::RawModule& raw, const std::string& name, const ImportOptions& options)
      : ImportOwner{{raw, name, options}}, ImportPart(whole) {}

  Module run();

 private:
  void convert_functions();
  void convert_function(const RawOp& op);
  void convert_ops(const RawRegion& region, Region& to) override;
  void convert_op(const RawOp& op, Region& to);
  void convert_vhlo(const OpReader& reader, Region& to);
  void note_place_of_work(const OpReader& reader);

  // The core's own number is partition_id of the graph, from which both ids follow.
  const Op& core_number(const OpReader& reader, Kind kind, const Type& type, Region& to) const;
  // dot_general of i1: an element is true if any of its products is. A sum of ones on the matrix
  // unit is never 0; with a result of numbers it counts.
  const Op& product_of_truths(const OpReader& reader, const DotAttrs& attrs, const Type& type,
                              Region& to) const;
  void convert_regions_of_call(const OpReader& reader) const;
  void convert_regions(const OpReader& reader, Op& out);

  CallGraph calls_{whole};
  MainInterface interface_{whole};
  ShardyOps shardy_{whole, *this};
  GspmdOps gspmd_ops_{whole};
  ChloOps chlo_{whole};
  HostTransfers host_{whole};
  CustomCalls custom_calls_{whole, *this, chlo_};
  size_t num_ops_ = 0;
  size_t for_host_ = 0;  // ops that the program wants computed by the host
  LocRef first_for_host_;
};

}  // namespace tpu::compiler::frontend
