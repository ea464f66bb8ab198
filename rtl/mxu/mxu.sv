// Matrix unit: weight-stationary systolic array, bf16 operands, f32 sums; Rows (K) by Cols (N).
//
// A weight word is the row pair {w[2p+1], w[2p]}, an x word {x[2p+1], x[2p]}. A column is cut into segments of 32 rows.
// In a segment the even and the odd rows are two chains from +0 (chain = w * x + chain, one rounding); their sum is
// added to the running value, which enters the column as acc_i. Specification: spec/arith/mxu_column.hpp.
//
// Flow, one row of x and acc a cycle, bubbles anywhere, no back pressure:
//   * weights: w_valid_i with the LAST pair first, one pair a cycle, into a shadow chain; x_swap_i with the first row
//     of a tile takes them over. That row may enter one cycle after the last pair. The next tile's weights may enter
//     mxu_swap_gap() cycles after it (spec/rtl/units.toml, which has the other constants too).
//   * results: y_valid_o comes mxu_latency() cycles after x_valid_i, all columns aligned.
//   * busy_o is low when nothing moves: the clock may then stop.
// x moves right one column a cycle; pair p of segment s starts s*Skew + (p mod 16) cycles after pair 0. Skew =
// SegmentCycles keeps every wire between neighbours, Skew = 1 is the shortest. mxu_sva.sv checks who drives the ports.
//
// This is the folded view. Control is registers (_q, from _d). The numbers are memories (no suffix) that one clocked
// process updates in place, from the last row up, so that each stage still sees its predecessor's old value.
// mxu_array.sv is the same machine as instances; a test holds them equal.

module mxu
  import fp32_pkg::*;
#(
    parameter int unsigned Rows = tpu_spec_pkg::MXU_ROWS,
    parameter int unsigned Cols = tpu_spec_pkg::MXU_COLS,
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
  localparam int unsigned Segments = Pairs / SegmentPairs;
  // Of the last pair.
  localparam int unsigned LastStart = tpu_spec_pkg::mxu_swap_gap(
      Rows, Skew, tpu_spec_pkg::MXU_SEGMENT_ROWS, tpu_spec_pkg::MXU_CHAINS);
  localparam int unsigned Latency = tpu_spec_pkg::mxu_latency(
      Rows, Cols, Skew, tpu_spec_pkg::MXU_SEGMENT_ROWS, tpu_spec_pkg::MXU_CHAINS);
  // All delay memories share one write pointer; a power of two deep, so that it wraps by itself.
  localparam int unsigned AccDelay = Cols + SegmentCycles;  // of the last column
  localparam int unsigned XDepth = 1 << $clog2(LastStart + 1);
  localparam int unsigned Depth = 1 << $clog2(((LastStart > AccDelay) ? LastStart : AccDelay) + 1);
  localparam int unsigned ColBits = (Cols > 1) ? $clog2(Cols) : 1;
  localparam int unsigned PairBits = $clog2(Pairs);
  localparam int unsigned SegBits = (Segments > 1) ? $clog2(Segments) : 1;
  localparam int unsigned PtrBits = $clog2(Depth);
  localparam int unsigned XPtrBits = $clog2(XDepth);
  localparam int unsigned LinePtrBits = (Skew > 2) ? $clog2(Skew) : 1;
  localparam int unsigned LineDepth = 1 << LinePtrBits;
  localparam int unsigned BusyBits = $clog2(Latency + 1);

  localparam int unsigned Chunk = (Cols < 32) ? Cols : 32;

  typedef logic [ColBits-1:0] col_t;
  typedef logic [PairBits-1:0] pair_t;
  typedef logic [SegBits-1:0] seg_t;
  typedef logic [PtrBits-1:0] ptr_t;
  typedef logic [XPtrBits-1:0] xptr_t;
  typedef logic [LinePtrBits-1:0] lptr_t;

  // Wavefront: which columns of a pair hold a row, and which of these rows take new weights.
  logic [Pairs-1:0][Cols-1:0] x_valid_q, x_swap_q;
  logic [Cols-1:0] w_valid_d, w_valid_q;  // columns whose shadow chain shifts
  logic [Segments-1:0][Cols-1:0] chain_valid_d, chain_valid_q;
  logic [Segments-1:0][Cols-1:0] sum_valid_q;
  logic [Segments-1:0][Cols-1:0] run_valid_q;
  logic [XDepth-1:0] xv_line_d, xv_line_q;  // valid and swap on their way to the lower pairs
  logic [XDepth-1:0] xs_line_d, xs_line_q;
  ptr_t wp_q;
  logic [BusyBits-1:0] busy_d, busy_q;

  /* verilator tracing_off */
  logic [31:0] x_pe [Pairs][Cols];      // x at each PE
  logic [31:0] act [Pairs][Cols];       // weights in use
  logic [31:0] shadow [Pairs][Cols];    // weights of the next tile
  logic [31:0] even [Pairs][Cols];
  logic [31:0] odd [Pairs][Cols];
  logic [31:0] sum [Segments][Cols];    // even + odd of a segment
  logic [31:0] run [Segments][Cols];    // running value below a segment
  logic [31:0] x_mem [XDepth][Pairs];   // skews x by pair
  logic [31:0] w_mem [Depth][Cols];     // skews weights by column
  logic [31:0] acc_mem [Depth][Cols];   // skews the accumulator by column
  logic [31:0] line_mem [Segments][LineDepth][Cols];  // running value, Skew - 1 cycles
  logic [31:0] y_mem [Depth][Cols];     // aligns the columns
  logic [31:0] mask [Cols];             // a wavefront as words, for lane-wise selects
  logic [31:0] run_in [Cols];
  logic [31:0] y_row [Cols];
  /* verilator tracing_on */

  logic swap_in;
  assign swap_in = x_valid_i & x_swap_i;
  assign y_o = y_row;
  assign y_valid_o = run_valid_q[Segments-1][Cols-1];
  assign busy_o = (busy_q != '0) | x_valid_i | w_valid_i;

  function automatic logic [Cols-1:0] shift_in(input logic [Cols-1:0] bits, input logic first);
    return (bits << 1) | Cols'(first);
  endfunction

  // The wavefront of all pairs a cycle later; `line` holds what enters each pair.
  function automatic logic [Pairs-1:0][Cols-1:0] move_on(input logic [Pairs-1:0][Cols-1:0] bits,
                                                         input logic [XDepth-1:0] line);
    for (int unsigned s = 0; s < Segments; s++)
      for (int unsigned i = 0; i < SegmentPairs; i++)
        move_on[pair_t'(s*SegmentPairs+i)] =
            shift_in(bits[pair_t'(s*SegmentPairs+i)], line[xptr_t'(s*Skew+i)]);
  endfunction

  // Control: every bit moves on by one column, pair or stage.
  always_comb begin
    xv_line_d = (xv_line_q << 1) | XDepth'(x_valid_i);
    xs_line_d = (xs_line_q << 1) | XDepth'(swap_in);
    for (int unsigned s = 0; s < Segments; s++)
      chain_valid_d[seg_t'(s)] = x_valid_q[pair_t'((s+1)*SegmentPairs-1)];
    w_valid_d = shift_in(w_valid_q, w_valid_i);
    busy_d = busy_q;
    if (x_valid_i || w_valid_i) busy_d = BusyBits'(Latency);
    else if (busy_q != '0) busy_d = busy_q - 1'b1;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      x_valid_q <= '0;
      x_swap_q <= '0;
      chain_valid_q <= '0;
      sum_valid_q <= '0;
      run_valid_q <= '0;
      xv_line_q <= '0;
      xs_line_q <= '0;
      w_valid_q <= '0;
      wp_q <= '0;
      busy_q <= '0;
    end else begin
      x_valid_q <= move_on(x_valid_q, xv_line_d);
      x_swap_q <= move_on(x_swap_q, xs_line_d);
      chain_valid_q <= chain_valid_d;
      sum_valid_q <= chain_valid_q;
      run_valid_q <= sum_valid_q;
      xv_line_q <= xv_line_d;
      xs_line_q <= xs_line_d;
      w_valid_q <= w_valid_d;
      wp_q <= wp_q + 1'b1;
      busy_q <= busy_d;
    end
  end

  // In chunks of a word: a bit select by the loop variable would keep the Verilated loop from vectorising.
  function automatic void expand_mask(input logic [Cols-1:0] bits);
    for (int unsigned k = 0; k < Cols; k += Chunk) begin
      logic [Chunk-1:0] chunk;
      chunk = bits[col_t'(k)+:Chunk];
      for (int unsigned i = 0; i < Chunk; i++)
        mask[col_t'(k+i)] = 32'd0 - ((32'(chunk) >> i) & 32'd1);
    end
  endfunction

  function automatic void skew_inputs(input ptr_t wp);
    x_mem[xptr_t'(wp)] = x_i;
    w_mem[wp] = w_i;
    acc_mem[wp] = acc_i;
  endfunction

  // The running value that enters a segment in this cycle: acc for the first, the delayed value from above for others.
  function automatic void take_acc(input ptr_t wp);
    for (int unsigned j = 0; j < Cols; j++)
      run_in[col_t'(j)] = acc_mem[wp-ptr_t'(j)-ptr_t'(SegmentCycles)][col_t'(j)];
  endfunction

  function automatic void take_line(input seg_t s, input lptr_t wp);
    line_mem[s][wp] = run[s];
    run_in = line_mem[s][wp-lptr_t'(Skew-1)];
  endfunction

  function automatic void add_running(input seg_t s);
    for (int unsigned j = 0; j < Cols; j++)
      run[s][col_t'(j)] = add(run_in[col_t'(j)], sum[s][col_t'(j)]);
  endfunction

  function automatic void add_chains(input seg_t s, input pair_t last);
    for (int unsigned j = 0; j < Cols; j++)
      sum[s][col_t'(j)] = add(even[last][col_t'(j)], odd[last][col_t'(j)]);
  endfunction

  // `keep` is all ones, or zero for the first pair of a segment, whose chains start at +0.
  function automatic void multiply_add(input pair_t p, input pair_t above, input logic [31:0] keep);
    for (int unsigned j = 0; j < Cols; j++)
      even[p][col_t'(j)] = fma_bf16(act[p][col_t'(j)] & 32'hffff, x_pe[p][col_t'(j)] & 32'hffff,
                                      even[above][col_t'(j)] & keep);
    for (int unsigned j = 0; j < Cols; j++)
      odd[p][col_t'(j)] = fma_bf16(act[p][col_t'(j)] >> 16, x_pe[p][col_t'(j)] >> 16,
                                     odd[above][col_t'(j)] & keep);
  endfunction

  function automatic void shift_x(input pair_t p, input logic [31:0] first);
    for (int unsigned j = Cols - 1; j > 0; j--) x_pe[p][col_t'(j)] = x_pe[p][col_t'(j-1)];
    x_pe[p][0] = first;
  endfunction

  function automatic void swap_weights(input pair_t p);
    for (int unsigned j = 0; j < Cols; j++)
      act[p][col_t'(j)] = (act[p][col_t'(j)] & ~mask[col_t'(j)]) |
                            (shadow[p][col_t'(j)] & mask[col_t'(j)]);
  endfunction

  function automatic void shift_shadow(input pair_t p, input pair_t above);
    for (int unsigned j = 0; j < Cols; j++)
      shadow[p][col_t'(j)] = (shadow[p][col_t'(j)] & ~mask[col_t'(j)]) |
                               (shadow[above][col_t'(j)] & mask[col_t'(j)]);
  endfunction

  function automatic void enter_shadow(input ptr_t wp);
    for (int unsigned j = 0; j < Cols; j++)
      shadow[0][col_t'(j)] = (shadow[0][col_t'(j)] & ~mask[col_t'(j)]) |
                               (w_mem[wp-ptr_t'(j)][col_t'(j)] & mask[col_t'(j)]);
  endfunction

  function automatic void align_outputs(input ptr_t wp);
    y_mem[wp] = run[Segments-1];
    for (int unsigned j = 0; j < Cols; j++)
      y_row[col_t'(j)] = y_mem[wp-ptr_t'(Cols-1)+ptr_t'(j)][col_t'(j)];
  endfunction

  // Everything of a segment that lies below its pairs.
  function automatic void step_segment_end(input seg_t s, input ptr_t wp);
    automatic pair_t last = pair_t'(s) * pair_t'(SegmentPairs) + pair_t'(SegmentPairs - 1);
    if (s == '0) take_acc(wp);
    else take_line(s - 1'b1, lptr_t'(wp));
    if (|sum_valid_q[s]) add_running(s);
    if (|chain_valid_q[s]) add_chains(s, last);
  endfunction

  function automatic void step_pair(input pair_t p, input xptr_t start, input logic [31:0] keep,
                                    input xptr_t wp);
    automatic logic [Cols-1:0] valid = shift_in(x_valid_q[p], xv_line_d[start]);
    automatic logic [Cols-1:0] swap = shift_in(x_swap_q[p], xs_line_d[start]);
    if (|x_valid_q[p]) multiply_add(p, (keep == '0) ? p : p - 1'b1, keep);
    if (|valid) shift_x(p, x_mem[wp-start][p]);
    if (|swap) begin
      expand_mask(swap);
      swap_weights(p);
    end
  endfunction

  function automatic void step_shadow(input ptr_t wp);
    expand_mask(w_valid_d);
    for (int unsigned p = Pairs - 1; p > 0; p--) shift_shadow(pair_t'(p), pair_t'(p - 1));
    enter_shadow(wp);
  endfunction

  function automatic void step(input ptr_t wp);
    skew_inputs(wp);
    for (int unsigned k = 0; k < Segments; k++) begin
      automatic int unsigned s = Segments - 1 - k;
      step_segment_end(seg_t'(s), wp);
      for (int unsigned l = 0; l < SegmentPairs; l++) begin
        automatic int unsigned i = SegmentPairs - 1 - l;
        step_pair(pair_t'(s * SegmentPairs + i), xptr_t'(s * Skew + i),
                  (i == 0) ? 32'd0 : 32'hffff_ffff, xptr_t'(wp));
      end
    end
    if (|w_valid_d) step_shadow(wp);
    align_outputs(wp);
  endfunction

  always_ff @(posedge clk_i) begin
    if (rst_ni) step(wp_q);
  end

endmodule
