// HloInstructionProto and what lies in it beside shapes, literals and shardings.
#include <iterator>

#include "import/hlo/read_parts.hpp"

namespace tpu::compiler::hlo {
namespace {

Metadata read_metadata(Message m) {
  Metadata data;
  while (m.next()) {
    switch (m.field()) {
      case 2:
        data.op_name = m.bytes();
        break;
      case 3:
        data.file = m.bytes();
        break;
      case 4:
        data.line = m.integer();
        break;
      case 15:
        data.frame = m.integer();
        break;
      case 18:
        data.column = m.integer();
        break;
      default:
        break;
    }
  }
  return data;
}

WindowDimension read_window_dimension(Message m) {
  WindowDimension w;
  int64_t* const fields[] = {&w.size, &w.stride,          &w.low,
                             &w.high, &w.window_dilation, &w.base_dilation};
  while (m.next()) {
    if (m.field() == 7) {
      w.reversed = m.flag();
    } else if (m.field() <= std::size(fields)) {
      *fields[m.field() - 1] = m.integer();
    }
  }
  return w;
}

std::vector<WindowDimension> read_window(Message m) {
  std::vector<WindowDimension> window;
  while (m.next()) {
    if (m.field() == 1) {
      window.push_back(read_window_dimension(m.message("WindowDimension")));
    }
  }
  return window;
}

std::vector<std::array<int64_t, 3>> read_padding(Message m) {
  std::vector<std::array<int64_t, 3>> dims;
  while (m.next()) {
    if (m.field() == 1) {
      dims.push_back(read_numbers<3>(m.message("PaddingConfigDimension")));
    }
  }
  return dims;
}

DotDimensions read_dot(Message m) {
  DotDimensions dot;
  Ints* const fields[] = {&dot.lhs_contract, &dot.rhs_contract, &dot.lhs_batch, &dot.rhs_batch};
  while (m.next()) {
    if (m.field() <= 4) {
      m.integers(*fields[m.field() - 1]);
    }
  }
  return dot;
}

ConvDimensions read_conv(Message m) {
  ConvDimensions c;
  while (m.next()) {
    switch (m.field()) {
      case 3:
        c.kernel_input = m.integer();
        break;
      case 4:
        c.kernel_output = m.integer();
        break;
      case 6:
        m.integers(c.kernel_spatial);
        break;
      case 7:
        c.input_batch = m.integer();
        break;
      case 8:
        c.input_feature = m.integer();
        break;
      case 9:
        c.output_batch = m.integer();
        break;
      case 10:
        c.output_feature = m.integer();
        break;
      case 11:
        m.integers(c.input_spatial);
        break;
      case 12:
        m.integers(c.output_spatial);
        break;
      default:
        break;
    }
  }
  return c;
}

IndexDimensions read_index(Message m) {
  IndexDimensions d;
  Ints* const fields[] = {&d.window, &d.collapsed,        &d.map,
                          nullptr,   &d.operand_batching, &d.index_batching};
  while (m.next()) {
    if (m.field() == 4) {
      d.index_vector_dim = m.integer();
    } else if (m.field() <= 6) {
      m.integers(*fields[m.field() - 1]);
    }
  }
  return d;
}

void read_precision(Message m, Instruction& to) {
  while (m.next()) {
    if (m.field() == 1) {
      m.integers(to.precision);
    } else if (m.field() == 2) {
      to.algorithm = m.integer();
    }
  }
}

// What most instructions lack: numbers and truths that stand alone. False: another field.
bool read_number(const Message& m, Instruction& to) {
  switch (m.field()) {
    case 9:
      to.parameter = m.integer();
      return true;
    case 13:
      to.tuple_index = m.integer();
      return true;
    case 18:
      to.exponent_bits = m.integer();
      return true;
    case 19:
      to.mantissa_bits = m.integer();
      return true;
    case 23:
      to.distribution = m.integer();
      return true;
    case 24:
      to.epsilon = m.real();
      return true;
    case 25:
      to.feature_index = m.integer();
      return true;
    case 26:
      to.channel = m.integer();
      return true;
    case 31:
      to.fft_type = m.integer();
      return true;
    case 35:
      to.id = m.integer();
      return true;
    case 45:  // all_reduce_id, the old name of a channel
      to.channel = to.channel > 0 ? to.channel : m.integer();
      return true;
    case 47:
      to.to_host = m.flag();
      return true;
    case 50:
      to.feature_groups = m.integer();
      return true;
    case 58:
      to.batch_groups = m.integer();
      return true;
    case 60:
      to.stable = m.flag();
      return true;
    case 65:
      to.side_effect = m.flag();
      return true;
    case 67:
      to.sorted = m.flag();
      return true;
    case 69:
      to.unique = m.flag();
      return true;
    case 70:
      to.rng_algorithm = m.integer();
      return true;
    case 71:
      to.global_ids = m.flag();
      return true;
    case 81:
      to.k = m.integer();
      return true;
    case 85:
      to.largest = m.flag();
      return true;
    case 89:
      to.composite = m.flag();
      return true;
    default:
      return false;
  }
}

// Texts and lists. False: another field.
bool read_list(const Message& m, Instruction& to) {
  switch (m.field()) {
    case 1:
      to.name = m.bytes();
      return true;
    case 2:
      to.opcode = m.bytes();
      return true;
    case 14:
      m.integers(to.dims);
      return true;
    case 20:
    case 34:
      m.integers(to.slice_sizes);
      return true;
    case 28:
      to.target = m.bytes();
      return true;
    case 32:
      m.integers(to.fft_length);
      return true;
    case 36:
      m.integers(to.operand_ids);
      return true;
    case 38:
      m.integers(to.called_ids);
      return true;
    case 43:
      to.backend_config = m.bytes();
      return true;
    case 63:
      to.direction = m.bytes();
      return true;
    case 72:
      to.comparison_type = m.bytes();
      return true;
    default:
      return false;
  }
}

TriangularSolve read_triangular(Message m) {
  const auto n = read_numbers<4>(std::move(m));
  return {n[0] != 0, n[1] != 0, n[2] != 0, n[3]};
}

// Messages about collectives. False: another field.
bool read_collective(const Message& m, Instruction& to) {
  switch (m.field()) {
    case 40:
      to.sharding = read_sharding(m.message("OpSharding"));
      return true;
    case 49:
      to.groups.push_back(read_numbers(m.message("ReplicaGroup")));
      return true;
    case 52:
      to.pairs.push_back(read_numbers<2>(m.message("SourceTarget")));
      return true;
    case 87:
    case 92:
    case 93:
      // In modules of 2025 (TensorFlow 2.20) field 92 is the enumerator of the group mode, which
      // follows from the channel and from use_global_device_ids.
      if (m.field() != 92 || !m.is_number()) {
        to.group_field = m.field();
        to.group_bytes = m.bytes();
      }
      return true;
    default:
      return false;
  }
}

void read_message(const Message& m, Instruction& to) {
  switch (m.field()) {
    case 3:
      to.shape = read_shape(m.message("ShapeProto"));
      break;
    case 7:
      to.metadata = read_metadata(m.message("OpMetadata"));
      break;
    case 8:
      to.literal = std::make_unique<Literal>(read_literal(m.message("LiteralProto")));
      break;
    case 15:
      to.window = read_window(m.message("Window"));
      break;
    case 16:
      to.conv = read_conv(m.message("ConvolutionDimensionNumbers"));
      break;
    case 17:
      to.slices.push_back(read_numbers<3>(m.message("SliceDimensions")));
      break;
    case 21:
      to.padding = read_padding(m.message("PaddingConfig"));
      break;
    case 30:
      to.dot = read_dot(m.message("DotDimensionNumbers"));
      break;
    case 33:
      to.gather = read_index(m.message("GatherDimensionNumbers"));
      break;
    case 48:
      to.scatter = read_index(m.message("ScatterDimensionNumbers"));
      break;
    case 51:
      read_precision(m.message("PrecisionConfig"), to);
      break;
    case 59:
      to.triangular = read_triangular(m.message("TriangularSolveOptions"));
      break;
    case 61:
      to.same = read_numbers(m.message("ParameterReplication"));
      break;
    case 62:
      to.lower = read_numbers<1>(m.message("CholeskyOptions"))[0] != 0;
      break;
    case 68:
      to.attributes = read_attributes(m.message("FrontendAttributes"));
      break;
    case 86:
    case 98:  // the sparsity of a dot's operands
      to.sparse = true;
      break;
    default:
      break;
  }
}

}  // namespace

Attributes read_attributes(Message m) {
  Attributes all;
  while (m.next()) {
    if (m.field() != 1) {
      continue;
    }
    std::string_view key, value;
    Message entry = m.message("FrontendAttributes.MapEntry");
    while (entry.next()) {
      if (entry.field() == 1) {
        key = entry.bytes();
      } else if (entry.field() == 2) {
        value = entry.bytes();
      }
    }
    all.emplace_back(key, value);
  }
  return all;
}

Instruction read_instruction(Message m) {
  Instruction instruction;
  while (m.next()) {
    if (!read_list(m, instruction) && !read_number(m, instruction) &&
        !read_collective(m, instruction)) {
      read_message(m, instruction);
    }
  }
  return instruction;
}

}  // namespace tpu::compiler::hlo
