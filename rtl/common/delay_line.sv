// Fixed delay of Cycles clock cycles for a bus (0: a wire). Registers, so that a long path can be laid out along it.

module delay_line #(
    parameter int unsigned Width = 32,
    parameter int unsigned Cycles = 1
) (
    input  logic             clk_i,
    input  logic [Width-1:0] data_i,
    output logic [Width-1:0] data_o  // data_i of Cycles cycles ago; unknown before that
);

  if (Cycles == 0) begin : g_wire
    logic unused_clk;
    assign unused_clk = clk_i;
    assign data_o = data_i;
  end else begin : g_line
    logic [Cycles*Width-1:0] stages_q;  // youngest at the bottom
    always_ff @(posedge clk_i) stages_q <= (stages_q << Width) | (Cycles * Width)'(data_i);
    assign data_o = stages_q[Cycles*Width-1-:Width];
  end

endmodule
