// Counting semaphores of a core.
//
// What is signalled in a cycle comes as one sum a semaphore (add_i: the crossbar that adds up the signals of engines and
// links is outside) and is visible Delay cycles later. What a waiter takes (take_i) is gone in the same cycle. A sum that
// would pass the limit is dropped, and said (overflow_o). settled_o: nothing is on its way, so that the clock may stop
// until the next add_i, take_i or clear_i. semaphores_sva.sv checks who drives the ports.

module semaphores #(
    parameter int unsigned Count = tpu_spec_pkg::SEM_COUNT,
    parameter int unsigned Delay = tpu_spec_pkg::SEM_DELAY,  // at least 1
    parameter int unsigned ValueBits = $clog2(tpu_spec_pkg::SEM_LIMIT + 1),  // the limit is all ones
    parameter int unsigned SumBits = tpu_spec_pkg::SEM_SUM_BITS,
    localparam int unsigned CountBits = $clog2(Count + 1)
) (
    input  logic                 clk_i,
    input  logic                 rst_ni,
    input  logic                 clear_i,              // all zero, and nothing on its way but what add_i brings
    input  logic [  SumBits-1:0] add_i      [Count],
    input  logic [ValueBits-1:0] take_i     [Count],
    output logic [ValueBits-1:0] value_o    [Count],   // what is left after take_i
    output logic                 overflow_o [Count],   // in the cycle in which the dropped sum would be visible
    output logic                 settled_o,
    output logic [CountBits-1:0] nonzero_o,            // how many are not zero
    output logic [CountBits-1:0] first_nonzero_o       // the lowest such, Count if there is none
);

  logic [ValueBits-1:0] value_d   [Count];
  logic [ValueBits-1:0] value_q   [Count];
  logic                 overflow_d[Count];
  logic                 overflow_q[Count];
  logic [  SumBits-1:0] due       [Count];  // becomes visible with the next edge

  if (Delay == 1) begin : g_now
    assign due = add_i;
    assign settled_o = 1'b1;
  end else begin : g_line
    logic [SumBits-1:0] line_q[Delay-1][Count];  // oldest last
    logic [Delay-2:0] on_way_q;                  // stages that hold something
    logic any_added;

    always_comb begin
      any_added = 1'b0;
      for (int unsigned i = 0; i < Count; i++) any_added |= |add_i[i];
    end

    always_ff @(posedge clk_i) begin
      if (!rst_ni) begin
        on_way_q <= '0;
      end else begin
        on_way_q <= (clear_i ? '0 : on_way_q << 1) | (Delay - 1)'(any_added);
      end
      line_q[0] <= add_i;
      for (int unsigned s = 1; s < Delay - 1; s++) line_q[s] <= line_q[s-1];
    end

    for (genvar i = 0; i < Count; i++) begin : g_due
      assign due[i] = (on_way_q[Delay-2] && !clear_i) ? line_q[Delay-2][i] : '0;
    end
    assign settled_o = on_way_q == '0;
  end

  always_comb begin
    nonzero_o = '0;
    first_nonzero_o = CountBits'(Count);
    for (int i = Count - 1; i >= 0; i--) begin
      value_o[i] = clear_i ? '0 : value_q[i] - take_i[i];
      overflow_o[i] = overflow_q[i];
      if (value_o[i] != '0) begin
        nonzero_o = nonzero_o + 1'b1;
        first_nonzero_o = CountBits'(i);
      end
    end
  end

  // The next edge.
  always_comb begin
    for (int unsigned i = 0; i < Count; i++) begin
      logic [SumBits:0] sum;
      sum = (SumBits + 1)'(value_o[i]) + (SumBits + 1)'(due[i]);
      overflow_d[i] = |sum[SumBits:ValueBits];
      value_d[i] = overflow_d[i] ? value_o[i] : sum[ValueBits-1:0];
      if (!rst_ni) begin
        overflow_d[i] = 1'b0;
        value_d[i] = '0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    value_q <= value_d;
    overflow_q <= overflow_d;
  end

endmodule
