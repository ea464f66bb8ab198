// Processing element of a row pair: two multiply-adds (even and odd row) of one column, with its weights.
// Sits in mxu_col.sv. One cycle from x_i and the chains to even_o/odd_o, one cycle from x_i to x_o; the weights are
// taken over from the shadow chain at the edge at which the swapping row's x is taken.

module mxu_pe
  import fp32_pkg::*;
(
    input  logic        clk_i,
    input  logic        rst_ni,
    input  logic        w_shift_i,  // the shadow weights take w_i
    input  logic [31:0] w_i,        // {odd row, even row}, bf16, from the PE above
    output logic [31:0] w_o,        // the shadow weights, to the PE below
    input  logic        x_valid_i,
    input  logic        x_swap_i,   // with x_valid_i: this row is the first with the shadow's weights
    input  logic [31:0] x_i,        // {odd row, even row}, bf16
    output logic        x_valid_o,  // to the column on the right, a cycle later
    output logic        x_swap_o,
    output logic [31:0] x_o,
    input  logic [31:0] even_i,     // f32 chains from the PE above, a cycle after x_i; +0 at a segment's top
    input  logic [31:0] odd_i,
    output logic        valid_o,    // the chains below are of a row
    output logic [31:0] even_o,     // f32, w * x + chain
    output logic [31:0] odd_o
);

  logic x_valid_q, x_swap_q, valid_q;
  logic [31:0] x_q, act_q, shadow_q, even_q, odd_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      x_valid_q <= 1'b0;
      x_swap_q <= 1'b0;
      valid_q <= 1'b0;
    end else begin
      x_valid_q <= x_valid_i;
      x_swap_q <= x_swap_i;
      valid_q <= x_valid_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (w_shift_i) shadow_q <= w_i;
    if (x_swap_i) act_q <= shadow_q;
    if (x_valid_i) x_q <= x_i;
    if (x_valid_q) begin
      even_q <= fma_bf16(act_q & 32'hffff, x_q & 32'hffff, even_i);
      odd_q <= fma_bf16(act_q >> 16, x_q >> 16, odd_i);
    end
  end

  assign w_o = shadow_q;
  assign x_valid_o = x_valid_q;
  assign x_swap_o = x_swap_q;
  assign x_o = x_q;
  assign valid_o = valid_q;
  assign even_o = even_q;
  assign odd_o = odd_q;

endmodule
