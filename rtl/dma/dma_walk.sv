// Address generator of one side of a transfer: the granules of a box of counted strides, in order, one a cycle.
//
// A box is Levels loops (outermost first, counts at least 1; unused ones are the outermost, with a count of 1) around a
// run of bytes. Levels that continue the run, from the innermost outwards, are joined to it first, one a cycle. Then each
// run is cut into granules from its first byte on; the last one of a run may be short (spec/command/strided_box.hpp).

module dma_walk #(
    parameter int unsigned Levels = tpu_spec_pkg::DMA_LEVELS,
    parameter int unsigned AddrBits = 64,
    parameter int unsigned Granule = tpu_spec_pkg::DMA_GRANULE,
    localparam int unsigned SizeBits = $clog2(Granule + 1)
) (
    input  logic                clk_i,
    input  logic                rst_ni,
    input  logic                start_i,            // takes the box, which then may go
    input  logic [AddrBits-1:0] base_i,
    input  logic [AddrBits-1:0] run_i,              // bytes, at least 1
    input  logic [AddrBits-1:0] count_i  [Levels],
    input  logic [AddrBits-1:0] stride_i [Levels],  // bytes, two's complement
    output logic                valid_o,
    input  logic                ready_i,
    output logic [AddrBits-1:0] addr_o,
    output logic [SizeBits-1:0] bytes_o,
    output logic                busy_o              // from the cycle after start_i to the last granule
);

  localparam int unsigned LevelBits = $clog2(Levels + 1);

  typedef enum logic [1:0] {Idle, Join, Walk} state_e;

  state_e state_d, state_q;
  logic [LevelBits-1:0] open_d, open_q;  // levels that are not joined
  logic [AddrBits-1:0] run_d, run_q;
  logic [AddrBits-1:0] at_d, at_q;  // in the run
  logic [AddrBits-1:0] count_d[Levels], count_q[Levels];
  logic [AddrBits-1:0] index_d[Levels], index_q[Levels];
  logic [AddrBits-1:0] stride_d[Levels], stride_q[Levels];
  logic [AddrBits-1:0] place_d[Levels], place_q[Levels];  // where the present turn of a level begins
  logic [AddrBits-1:0] place;  // of the run
  logic [AddrBits-1:0] left;  // of the run
  logic last_of_run;

  assign place = place_q[Levels-1];
  assign left = run_q - at_q;
  assign last_of_run = left <= AddrBits'(Granule);
  assign valid_o = state_q == Walk;
  assign busy_o = state_q != Idle;
  assign addr_o = place + at_q;
  assign bytes_o = last_of_run ? left[SizeBits-1:0] : SizeBits'(Granule);

  always_comb begin
    logic found;
    logic [AddrBits-1:0] next;

    state_d = state_q;
    open_d = open_q;
    run_d = run_q;
    at_d = at_q;
    count_d = count_q;
    index_d = index_q;
    stride_d = stride_q;
    place_d = place_q;
    found = 1'b0;
    next = '0;

    unique case (state_q)
      Idle: begin
        if (start_i) begin
          state_d = Join;
          open_d = LevelBits'(Levels);
          run_d = run_i;
          at_d = '0;
          count_d = count_i;
          stride_d = stride_i;
          for (int unsigned l = 0; l < Levels; l++) begin
            index_d[l] = '0;
            place_d[l] = base_i;
          end
        end
      end
      Join: begin
        // One level a cycle: it continues the run, or the run is as long as it gets.
        state_d = Walk;
        for (int unsigned l = 0; l < Levels; l++) begin
          if (open_q == LevelBits'(l + 1) && (count_q[l] == AddrBits'(1) || stride_q[l] == run_q)) begin
            state_d = Join;
            open_d = LevelBits'(l);
            run_d = run_q * count_q[l];
            count_d[l] = AddrBits'(1);
          end
        end
      end
      default: begin
        if (ready_i) begin
          at_d = at_q + AddrBits'(bytes_o);
          if (last_of_run) begin
            at_d = '0;
            // The innermost level with a turn left goes on; those inside it begin again.
            for (int l = Levels - 1; l >= 0; l--) begin
              if (!found) begin
                if (index_q[l] + 1 != count_q[l]) begin
                  found = 1'b1;
                  index_d[l] = index_q[l] + 1;
                  next = place_q[l] + stride_q[l];
                  for (int m = 0; m < Levels; m++) if (m >= l) place_d[m] = next;
                end else begin
                  index_d[l] = '0;
                end
              end
            end
            if (!found) state_d = Idle;
          end
        end
      end
    endcase
    if (!rst_ni) state_d = Idle;
  end

  always_ff @(posedge clk_i) begin
    state_q <= state_d;
    open_q <= open_d;
    run_q <= run_d;
    at_q <= at_d;
    count_q <= count_d;
    index_q <= index_d;
    stride_q <= stride_d;
    place_q <= place_d;
  end

endmodule
