// What must not happen at the ports of a matrix unit; bound into both views. Who steps the unit is told of an assertion
// that fails (rtl/run/assertions.hpp). Specification: spec/arith/mxu_timing.hpp.

module mxu_sva #(
    parameter int unsigned Rows = tpu_spec_pkg::MXU_ROWS,
    parameter int unsigned Cols = tpu_spec_pkg::MXU_COLS,
    parameter int unsigned Skew = tpu_spec_pkg::MXU_SKEW
) (
    input logic clk_i,
    input logic rst_ni,
    input logic w_valid_i,
    input logic x_valid_i,
    input logic x_swap_i,
    input logic y_valid_o,
    input logic busy_o
);

  localparam int unsigned Pairs = Rows / 2;
  localparam int unsigned SwapGap = tpu_spec_pkg::mxu_swap_gap(
      Rows, Skew, tpu_spec_pkg::MXU_SEGMENT_ROWS, tpu_spec_pkg::MXU_CHAINS);
  localparam int unsigned Latency = tpu_spec_pkg::mxu_latency(
      Rows, Cols, Skew, tpu_spec_pkg::MXU_SEGMENT_ROWS, tpu_spec_pkg::MXU_CHAINS);
  localparam int unsigned LoadBits = $clog2(Pairs + 2);
  localparam int unsigned GapBits = $clog2(SwapGap + 1);

  logic swap;
  logic [LoadBits-1:0] loaded_q;     // pairs since the last swap, Pairs + 1 when there were more
  logic [GapBits-1:0] gap_q;         // cycles until the next tile's weights may enter
  logic [Latency-1:0] x_valid_q;     // rows on their way, youngest at the bottom

  assign swap = x_valid_i & x_swap_i;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      loaded_q <= '0;
      gap_q <= '0;
      x_valid_q <= '0;
    end else begin
      if (swap) loaded_q <= '0;
      else if (w_valid_i && loaded_q <= LoadBits'(Pairs)) loaded_q <= loaded_q + 1'b1;
      if (swap) gap_q <= GapBits'(SwapGap - 1);
      else if (gap_q != '0) gap_q <= gap_q - 1'b1;
      x_valid_q <= (x_valid_q << 1) | Latency'(x_valid_i);
    end
  end

  // At the edge itself, not as properties: Verilator 5.006 samples a property's signals before the inputs of a bound
  // module have settled.
  always_ff @(posedge clk_i) begin
    if (rst_ni) begin
      // The row that swaps comes at least a cycle after the last pair.
      swap_after_load :
      assert (!(swap && w_valid_i))
      else $error("mxu: w_valid_i in the cycle of the row that swaps");

      // A tile is loaded as a whole: a swap finds all its pairs.
      whole_tile :
      assert (!swap || loaded_q == LoadBits'(Pairs))
      else $error("mxu: a swap after %0d weight pairs: expected Rows / 2", loaded_q);

      // Weights of the next tile do not overtake the swap of the last pair.
      weights_wait :
      assert (!w_valid_i || gap_q == '0)
      else $error("mxu: weights enter before the swap gap is over");

      // A result leaves exactly Latency cycles after its row, and only then; until then the clock must not stop.
      latency :
      assert (y_valid_o == x_valid_q[Latency-1])
      else $error("mxu: y_valid_o differs from x_valid_i Latency cycles earlier");
      busy_covers :
      assert (busy_o || !(|x_valid_q))
      else $error("mxu: busy_o is 0 with a row in flight");
    end
  end

endmodule

bind mxu mxu_sva #(
    .Rows(Rows),
    .Cols(Cols),
    .Skew(Skew)
) u_sva (
    .*
);
bind mxu_array mxu_sva #(
    .Rows(Rows),
    .Cols(Cols),
    .Skew(Skew)
) u_sva (
    .*
);
