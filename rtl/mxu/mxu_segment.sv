// End of a segment in one column: adds the two chains, then the sum to the running value. Two cycles, one a cycle.

module mxu_segment
  import fp32_pkg::*;
(
    input  logic        clk_i,
    input  logic        rst_ni,
    input  logic        valid_i,  // the chains are of a row
    input  logic [31:0] even_i,   // f32 chains of the segment's last pair
    input  logic [31:0] odd_i,
    input  logic [31:0] run_i,    // f32 running value, one cycle after even_i and odd_i
    output logic        valid_o,  // two cycles after valid_i
    output logic [31:0] run_o     // f32, run_i + (even_i + odd_i)
);

  logic sum_valid_q, run_valid_q;
  logic [31:0] sum_q, run_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      sum_valid_q <= 1'b0;
      run_valid_q <= 1'b0;
    end else begin
      sum_valid_q <= valid_i;
      run_valid_q <= sum_valid_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i) sum_q <= add(even_i, odd_i);
    if (sum_valid_q) run_q <= add(run_i, sum_q);
  end

  assign valid_o = run_valid_q;
  assign run_o = run_q;

endmodule
