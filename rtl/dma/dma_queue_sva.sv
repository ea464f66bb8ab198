// What must not happen at the ports of a DMA queue, and what it must do; bound into it.
// At the edge itself, not as properties, for the reason that mxu_sva.sv gives.

module dma_queue_sva #(
    parameter int unsigned Levels = tpu_spec_pkg::DMA_LEVELS,
    parameter int unsigned AddrBits = 64,
    parameter int unsigned Granule = tpu_spec_pkg::DMA_GRANULE,
    parameter int unsigned Credits = tpu_spec_pkg::DMA_CREDITS,
    localparam int unsigned SizeBits = $clog2(Granule + 1)
) (
    input logic                clk_i,
    input logic                rst_ni,
    input logic                start_i,
    input logic                start_ready_o,
    input logic                fill_i,
    input logic [AddrBits-1:0] run_i,
    input logic [AddrBits-1:0] count_i    [Levels],
    input logic                rd_valid_o,
    input logic                rd_ready_i,
    input logic [AddrBits-1:0] rd_addr_o,
    input logic [SizeBits-1:0] rd_bytes_o,
    input logic                rd_done_i,
    input logic                wr_valid_o,
    input logic                wr_ready_i,
    input logic [AddrBits-1:0] wr_addr_o,
    input logic [SizeBits-1:0] wr_bytes_o,
    input logic                wr_done_i,
    input logic                done_o
);

  logic known_q;
  logic rd_held_q, wr_held_q;  // a request was not taken in the last cycle
  logic [AddrBits-1:0] rd_addr_q, wr_addr_q;
  logic [SizeBits-1:0] rd_bytes_q, wr_bytes_q;
  logic [31:0] reading_q, writing_q;            // not answered
  logic [AddrBits-1:0] read_q, written_q;       // bytes asked for since the start
  logic [AddrBits-1:0] total_q;                 // of the transfer
  logic fill_q;
  logic [AddrBits-1:0] total;
  logic rd_fire, wr_fire;

  assign rd_fire = rd_valid_o && rd_ready_i;
  assign wr_fire = wr_valid_o && wr_ready_i;

  always_comb begin
    total = run_i;
    for (int unsigned l = 0; l < Levels; l++) total = total * count_i[l];
  end

  always_ff @(posedge clk_i) begin
    known_q <= rst_ni;
    rd_held_q <= rd_valid_o && !rd_ready_i;
    wr_held_q <= wr_valid_o && !wr_ready_i;
    rd_addr_q <= rd_addr_o;
    wr_addr_q <= wr_addr_o;
    rd_bytes_q <= rd_bytes_o;
    wr_bytes_q <= wr_bytes_o;
    if (!rst_ni) begin
      reading_q <= '0;
      writing_q <= '0;
      read_q <= '0;
      written_q <= '0;
      total_q <= '0;
      fill_q <= 1'b0;
    end else begin
      reading_q <= reading_q + 32'(rd_fire) - 32'(rd_done_i);
      writing_q <= writing_q + 32'(wr_fire) - 32'(wr_done_i);
      if (start_i && start_ready_o) begin
        total_q <= total;
        fill_q <= fill_i;
        read_q <= '0;
        written_q <= '0;
      end else begin
        read_q <= read_q + (rd_fire ? AddrBits'(rd_bytes_o) : '0);
        written_q <= written_q + (wr_fire ? AddrBits'(wr_bytes_o) : '0);
      end
    end

    if (rst_ni && known_q) begin
      // Who drives the ports.
      box_not_empty :
      assert (!(start_i && start_ready_o) || total != '0)
      else $error("dma_queue: start_i with a transfer of 0 bytes");
      read_answers :
      assert (!rd_done_i || reading_q != '0)
      else $error("dma_queue: rd_done_i without a read in flight");
      write_answers :
      assert (!wr_done_i || writing_q != '0)
      else $error("dma_queue: wr_done_i without a write in flight");

      // The unit.
      read_stays :
      assert (!rd_held_q || (rd_valid_o && rd_addr_o == rd_addr_q && rd_bytes_o == rd_bytes_q))
      else $error("dma_queue: a read request changed before it was accepted");
      write_stays :
      assert (!wr_held_q || (wr_valid_o && wr_addr_o == wr_addr_q && wr_bytes_o == wr_bytes_q))
      else $error("dma_queue: a write request changed before it was accepted");
      read_size :
      assert (!rd_valid_o || (rd_bytes_o != '0 && rd_bytes_o <= SizeBits'(Granule)))
      else $error("dma_queue: a read of 0 bytes, or of more than a granule");
      write_size :
      assert (!wr_valid_o || (wr_bytes_o != '0 && wr_bytes_o <= SizeBits'(Granule)))
      else $error("dma_queue: a write of 0 bytes, or of more than a granule");
      room :
      assert (fill_q || written_q > read_q || read_q - written_q <= AddrBits'(Granule * Credits))
      else $error("dma_queue: the reserved bytes exceed the buffer");
      order :
      assert (fill_q || written_q <= read_q)
      else $error("dma_queue: a write has bytes whose read was not requested");
      credits :
      assert (reading_q <= Credits && writing_q <= Credits)
      else $error("dma_queue: the granules in flight exceed the credits");
      done_with_all :
      assert (!done_o || (written_q == total_q && (fill_q || read_q == total_q) && reading_q == '0 &&
                          writing_q == 32'(wr_done_i)))
      else $error("dma_queue: done before all bytes were written");
    end
  end

endmodule

bind dma_queue dma_queue_sva #(
    .Levels(Levels),
    .AddrBits(AddrBits),
    .Granule(Granule),
    .Credits(Credits)
) u_sva (
    .*
);
