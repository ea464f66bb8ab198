// The opcodes of HLO: for each what it becomes, or why it is refused. Private to the import.
#pragma once

#include <span>
#include <string_view>

#include "import/hlo/converter.hpp"

namespace tpu::compiler::hlo {

struct Opcode {
  std::string_view name;
  int operands;           // -1: any number
  std::string_view vhlo;  // the op that it becomes; empty: several or none
  void (*convert)(const Step& step, std::string_view vhlo);  // null: refused
};

// All opcodes of XLA up to the version in opcodes.cpp, by name.
std::span<const Opcode> opcodes();
const Opcode* find_opcode(std::string_view name);  // null: not known

// Columns of a window's dimensions, by the names that VHLO gives them.
struct WindowLists {
  explicit WindowLists(const Instruction& at);

  Ints size, stride, padding, base_dilation, window_dilation, reversal;
};

// Handlers, by the file that has them.
namespace shapes {  // convert_shapes.cpp: arrays to arrays, without arithmetic
void parameter(const Step& step, std::string_view vhlo);
void constant(const Step& step, std::string_view vhlo);
void iota(const Step& step, std::string_view vhlo);
void same(const Step& step, std::string_view vhlo);  // gives its first operand
void tuple(const Step& step, std::string_view vhlo);
void element(const Step& step, std::string_view vhlo);
void bitcast(const Step& step, std::string_view vhlo);
void broadcast(const Step& step, std::string_view vhlo);
void transpose(const Step& step, std::string_view vhlo);
void dimensions(const Step& step, std::string_view vhlo);  // reverse
void dimension(const Step& step, std::string_view vhlo);   // concatenate and others
void slice(const Step& step, std::string_view vhlo);
void dynamic_slice(const Step& step, std::string_view vhlo);
void dynamic_update_slice(const Step& step, std::string_view vhlo);
void pad(const Step& step, std::string_view vhlo);
void gather(const Step& step, std::string_view vhlo);
}  // namespace shapes
namespace sizes {  // convert_sizes.cpp: sizes of dimensions that are known at run time only
void set_dimension_size(const Step& step, std::string_view vhlo);
// Those of a scatter. Indices beyond such a size become -1, so that nothing is written for them.
std::vector<uint32_t> scatter_operands(const Step& step);
}  // namespace sizes
namespace math {  // convert_math.cpp: arithmetic
void plain(const Step& step, std::string_view vhlo);
void chlo(const Step& step, std::string_view vhlo);
void compare(const Step& step, std::string_view vhlo);
void multiply_high(const Step& step, std::string_view vhlo);
void reduce_precision(const Step& step, std::string_view vhlo);
void dot(const Step& step, std::string_view vhlo);
void convolution(const Step& step, std::string_view vhlo);
void fft(const Step& step, std::string_view vhlo);
void batch_norm(const Step& step, std::string_view vhlo);
void cholesky(const Step& step, std::string_view vhlo);
void triangular_solve(const Step& step, std::string_view vhlo);
void rng(const Step& step, std::string_view vhlo);
void rng_bit_generator(const Step& step, std::string_view vhlo);
}  // namespace math
namespace bodies {  // convert_bodies.cpp: opcodes with computations, and control
void map(const Step& step, std::string_view vhlo);
void reduce(const Step& step, std::string_view vhlo);
void reduce_window(const Step& step, std::string_view vhlo);
void select_and_scatter(const Step& step, std::string_view vhlo);
void scatter(const Step& step, std::string_view vhlo);
void sort(const Step& step, std::string_view vhlo);
void top_k(const Step& step, std::string_view vhlo);
void loop(const Step& step, std::string_view vhlo);
void conditional(const Step& step, std::string_view vhlo);
void call(const Step& step, std::string_view vhlo);
void fusion(const Step& step, std::string_view vhlo);
void custom_call(const Step& step, std::string_view vhlo);
void async_start(const Step& step, std::string_view vhlo);
void async_update(const Step& step, std::string_view vhlo);
void done(const Step& step, std::string_view vhlo);  // the end of what another began
void copy_start(const Step& step, std::string_view vhlo);
}  // namespace bodies
// Shardy's operations, as custom calls (convert_shardy.cpp). False: it is another one.
bool shardy_custom_call(const Step& step);
namespace cores {  // convert_cores.cpp: between cores, and with the host
void all_reduce(const Step& step, std::string_view vhlo);
void all_gather(const Step& step, std::string_view vhlo);
void reduce_scatter(const Step& step, std::string_view vhlo);
void all_to_all(const Step& step, std::string_view vhlo);
void permute(const Step& step, std::string_view vhlo);
void broadcast(const Step& step, std::string_view vhlo);
void send(const Step& step, std::string_view vhlo);
void send_done(const Step& step, std::string_view vhlo);
void recv(const Step& step, std::string_view vhlo);
void recv_done(const Step& step, std::string_view vhlo);
void infeed(const Step& step, std::string_view vhlo);
}  // namespace cores

}  // namespace tpu::compiler::hlo
