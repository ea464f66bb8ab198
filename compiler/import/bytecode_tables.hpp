// Entry decoders of the attribute and type section. Private to the bytecode reader.
#pragma once

#include "import/bytecode.hpp"
#include "import/cursor.hpp"

namespace tpu::compiler::bytecode {

// `cursor` holds the entry's bytes behind its code. Attributes need module.strings and
// module.types.
RawType read_type_entry(Cursor cursor, Dialect dialect, uint32_t code, const RawModule& module,
                        size_t num_attrs, size_t num_types);
RawAttr read_attr_entry(Cursor cursor, Dialect dialect, uint32_t code, const RawModule& module,
                        size_t num_attrs, size_t num_types);

}  // namespace tpu::compiler::bytecode
