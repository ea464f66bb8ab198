// One column of the matrix unit: Rows/2 PEs, a segment adder for every 16 of them, and the running value on its
// way down.
// x, valid and swap of each pair come from the column to the left and leave to the right, a cycle later.

module mxu_col #(
    parameter int unsigned Rows = 32,
    parameter int unsigned Skew = 1
) (
    input  logic              clk_i,
    input  logic              rst_ni,
    input  logic              w_shift_i,          // the shadow chain takes w_i at its top and moves down
    input  logic [31:0]       w_i,                // {w[2p+1], w[2p]}, bf16
    input  logic [Rows/2-1:0] x_valid_i,          // by pair: its word of x_i is of a row
    input  logic [Rows/2-1:0] x_swap_i,           // by pair: this row is the first with the shadow's weights
    input  logic [31:0]       x_i      [Rows/2],  // {x[2p+1], x[2p]}, bf16
    output logic [Rows/2-1:0] x_valid_o,          // x_valid_i, a cycle later, to the column on the right
    output logic [Rows/2-1:0] x_swap_o,
    output logic [31:0]       x_o      [Rows/2],
    input  logic [31:0]       acc_i,              // f32, in the cycle of the first segment's sum
    output logic              valid_o,            // run_o is the result of a row
    output logic [31:0]       run_o               // f32
);

  localparam int unsigned Pairs = Rows / 2;
  localparam int unsigned SegmentPairs = tpu_spec_pkg::mxu_segment_stages(
      tpu_spec_pkg::MXU_SEGMENT_ROWS, tpu_spec_pkg::MXU_CHAINS);
  localparam int unsigned Segments = Pairs / SegmentPairs;

  logic [31:0] w_chain [Pairs];
  logic [31:0] even [Pairs];
  logic [31:0] odd [Pairs];
  logic [Pairs-1:0] pe_valid;
  logic [31:0] run_in [Segments];
  logic [31:0] run_out [Segments];
  logic [Segments-1:0] run_valid;

  for (genvar p = 0; p < Pairs; p++) begin : g_pair
    logic [31:0] w_above, even_above, odd_above;
    if (p == 0) begin : g_top
      assign w_above = w_i;
    end else begin : g_chain
      assign w_above = w_chain[p-1];
    end
    if (p % SegmentPairs == 0) begin : g_first
      assign even_above = '0;
      assign odd_above = '0;
    end else begin : g_next
      assign even_above = even[p-1];
      assign odd_above = odd[p-1];
    end
    mxu_pe u_pe (
        .clk_i,
        .rst_ni,
        .w_shift_i,
        .w_i(w_above),
        .w_o(w_chain[p]),
        .x_valid_i(x_valid_i[p]),
        .x_swap_i(x_swap_i[p]),
        .x_i(x_i[p]),
        .x_valid_o(x_valid_o[p]),
        .x_swap_o(x_swap_o[p]),
        .x_o(x_o[p]),
        .even_i(even_above),
        .odd_i(odd_above),
        .valid_o(pe_valid[p]),
        .even_o(even[p]),
        .odd_o(odd[p])
    );
  end

  for (genvar s = 0; s < Segments; s++) begin : g_segment
    if (s == 0) begin : g_acc
      assign run_in[s] = acc_i;
    end else begin : g_run
      delay_line #(
          .Width(32),
          .Cycles(Skew - 1)
      ) u_line (
          .clk_i,
          .data_i(run_out[s-1]),
          .data_o(run_in[s])
      );
    end
    mxu_segment u_segment (
        .clk_i,
        .rst_ni,
        .valid_i(pe_valid[(s+1)*SegmentPairs-1]),
        .even_i(even[(s+1)*SegmentPairs-1]),
        .odd_i(odd[(s+1)*SegmentPairs-1]),
        .run_i(run_in[s]),
        .valid_o(run_valid[s]),
        .run_o(run_out[s])
    );
  end

  assign valid_o = run_valid[Segments-1];
  assign run_o = run_out[Segments-1];

endmodule
