// What must not happen at the ports of the semaphore unit, and what it must do; bound into it.
// At the edge itself, not as properties, for the reason that mxu_sva.sv gives.

module semaphores_sva #(
    parameter int unsigned Count = tpu_spec_pkg::SEM_COUNT,
    parameter int unsigned ValueBits = $clog2(tpu_spec_pkg::SEM_LIMIT + 1),
    parameter int unsigned SumBits = tpu_spec_pkg::SEM_SUM_BITS
) (
    input logic                 clk_i,
    input logic                 rst_ni,
    input logic                 clear_i,
    input logic [  SumBits-1:0] add_i     [Count],
    input logic [ValueBits-1:0] take_i    [Count],
    input logic [ValueBits-1:0] value_o   [Count],
    input logic                 overflow_o[Count],
    input logic                 settled_o
);

  logic [ValueBits-1:0] left_q[Count];  // value_o of the last cycle
  logic idle_q;                         // settled then, and nothing came
  logic known_q;                        // there was a last cycle
  logic any_added;

  always_comb begin
    any_added = 1'b0;
    for (int unsigned i = 0; i < Count; i++) any_added |= |add_i[i];
  end

  always_ff @(posedge clk_i) begin
    left_q <= value_o;
    idle_q <= settled_o && !any_added;
    known_q <= rst_ni;
    if (rst_ni) begin
      for (int unsigned i = 0; i < Count; i++) begin
        // A waiter takes what is there: value_o would wrap around else.
        take_what_is_there :
        assert (clear_i || value_o[i] + take_i[i] >= value_o[i])
        else $error("semaphores: take_i exceeds the value of semaphore %0d", i);

        if (known_q && !clear_i) begin
          // Nothing changes without a signal: the clock may stop.
          still_when_settled :
          assert (!idle_q || value_o[i] + take_i[i] == left_q[i])
          else $error("semaphores: semaphore %0d changed without a signal", i);

          // A dropped sum leaves the value as it was.
          overflow_keeps :
          assert (!overflow_o[i] || value_o[i] + take_i[i] == left_q[i])
          else $error("semaphores: semaphore %0d changed although it overflowed", i);

          // Only a take makes it smaller.
          grows :
          assert (value_o[i] + take_i[i] >= left_q[i])
          else $error("semaphores: the value of semaphore %0d decreased by more than take_i", i);
        end
      end
    end
  end

endmodule

bind semaphores semaphores_sva #(
    .Count(Count),
    .ValueBits(ValueBits),
    .SumBits(SumBits)
) u_sva (
    .*
);
