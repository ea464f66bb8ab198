// Test access to the array's arithmetic: Copies independent multiply-adds and additions, combinational.

module mxu_arith_probe
  import fp32_pkg::*;
#(
    parameter int unsigned Copies = 128
) (
    input  logic [31:0] a_i   [Copies],  // bf16 in the low half for fma_o, binary32 for add_o
    input  logic [31:0] b_i   [Copies],  // bf16 in the low half
    input  logic [31:0] c_i   [Copies],
    output logic [31:0] fma_o [Copies],
    output logic [31:0] add_o [Copies]
);

  always_comb begin
    for (int unsigned i = 0; i < Copies; i++) begin
      fma_o[i] = fma_bf16(a_i[i], b_i[i], c_i[i]);
      add_o[i] = add(a_i[i], c_i[i]);
    end
  end

endmodule
