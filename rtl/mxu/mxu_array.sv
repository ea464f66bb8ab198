// Structural view of the matrix unit: the same ports, latency and bits as mxu.sv, built of PE instances and delay
// lines. This is the view to read, to lay out and to synthesise; its simulation is about twenty
// times slower than the folded one.

module mxu_array #(
    parameter int unsigned Rows = 32,
    parameter int unsigned Cols = 8,
    parameter int unsigned Skew = tpu_spec_pkg::MXU_SKEW  // cycles between the starts of two segments
) (
    input  logic        clk_i,
    input  logic        rst_ni,             // control only; the numbers keep what they hold
    input  logic        w_valid_i,          // a pair of weight rows enters, the last pair first
    input  logic [31:0] w_i      [Cols],    // {w[2p+1], w[2p]} of each column
    input  logic        x_valid_i,          // a row of x enters
    input  logic        x_swap_i,           // with x_valid_i: the first row that meets the loaded weights
    input  logic [31:0] x_i      [Rows/2],  // {x[2p+1], x[2p]} of the row
    input  logic [31:0] acc_i    [Cols],    // f32 running values of the row
    output logic        y_valid_o,
    output logic [31:0] y_o      [Cols],    // f32 results of the row that entered first
    output logic        busy_o              // low: nothing moves, the clock may stop
);

  localparam int unsigned Pairs = Rows / 2;
  localparam int unsigned SegmentPairs = tpu_spec_pkg::mxu_segment_stages(
      tpu_spec_pkg::MXU_SEGMENT_ROWS, tpu_spec_pkg::MXU_CHAINS);
  // Of a segment: its pairs, the sum of the two chains, the addition to the running value.
  localparam int unsigned SegmentCycles = tpu_spec_pkg::mxu_segment_cycles(
      tpu_spec_pkg::MXU_SEGMENT_ROWS, tpu_spec_pkg::MXU_CHAINS);
  localparam int unsigned LastStart = tpu_spec_pkg::mxu_swap_gap(
      Rows, Skew, tpu_spec_pkg::MXU_SEGMENT_ROWS, tpu_spec_pkg::MXU_CHAINS);
  localparam int unsigned Latency = tpu_spec_pkg::mxu_latency(
      Rows, Cols, Skew, tpu_spec_pkg::MXU_SEGMENT_ROWS, tpu_spec_pkg::MXU_CHAINS);
  localparam int unsigned BusyBits = $clog2(Latency + 1);

  // Valid, swap and weight enables on their way to later pairs and columns; bit 0 is this cycle's input.
  logic [LastStart:0] x_valid_line, x_swap_line;
  logic [Cols-1:0] w_line;
  logic [LastStart:0] x_valid_q, x_swap_q;
  logic [Cols-1:0] w_valid_q;
  logic [BusyBits-1:0] busy_q;

  assign x_valid_line = (x_valid_q << 1) | (LastStart + 1)'(x_valid_i);
  assign x_swap_line = (x_swap_q << 1) | ((LastStart + 1)'(x_swap_i) & (LastStart + 1)'(x_valid_i));
  assign w_line = (w_valid_q << 1) | Cols'(w_valid_i);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      x_valid_q <= '0;
      x_swap_q <= '0;
      w_valid_q <= '0;
      busy_q <= '0;
    end else begin
      x_valid_q <= x_valid_line;
      x_swap_q <= x_swap_line;
      w_valid_q <= w_line;
      if (x_valid_i || w_valid_i) busy_q <= BusyBits'(Latency);
      else if (busy_q != '0) busy_q <= busy_q - 1'b1;
    end
  end

  // x between columns: index j is what enters column j.
  logic [Pairs-1:0] x_valid [Cols+1];
  logic [Pairs-1:0] x_swap [Cols+1];
  logic [31:0] x [Cols+1][Pairs];
  logic [Cols-1:0] col_valid;

  for (genvar p = 0; p < Pairs; p++) begin : g_skew
    localparam int unsigned Start = (p / SegmentPairs) * Skew + p % SegmentPairs;
    assign x_valid[0][p] = x_valid_line[Start];
    assign x_swap[0][p] = x_swap_line[Start];
    delay_line #(
        .Width(32),
        .Cycles(Start)
    ) u_x (
        .clk_i,
        .data_i(x_i[p]),
        .data_o(x[0][p])
    );
  end

  for (genvar j = 0; j < Cols; j++) begin : g_col
    logic [31:0] w_skewed, acc_skewed, run;
    delay_line #(
        .Width(32),
        .Cycles(j)
    ) u_w (
        .clk_i,
        .data_i(w_i[j]),
        .data_o(w_skewed)
    );
    delay_line #(
        .Width(32),
        .Cycles(j + SegmentCycles)
    ) u_acc (
        .clk_i,
        .data_i(acc_i[j]),
        .data_o(acc_skewed)
    );
    mxu_col #(
        .Rows(Rows),
        .Skew(Skew)
    ) u_col (
        .clk_i,
        .rst_ni,
        .w_shift_i(w_line[j]),
        .w_i(w_skewed),
        .x_valid_i(x_valid[j]),
        .x_swap_i(x_swap[j]),
        .x_i(x[j]),
        .x_valid_o(x_valid[j+1]),
        .x_swap_o(x_swap[j+1]),
        .x_o(x[j+1]),
        .acc_i(acc_skewed),
        .valid_o(col_valid[j]),
        .run_o(run)
    );
    delay_line #(
        .Width(32),
        .Cycles(Cols - 1 - j)
    ) u_y (
        .clk_i,
        .data_i(run),
        .data_o(y_o[j])
    );
  end

  assign y_valid_o = col_valid[Cols-1];
  assign busy_o = (busy_q != '0) | x_valid_i | w_valid_i;

endmodule
