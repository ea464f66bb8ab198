// Control of one DMA queue: a transfer becomes granules that are read, and granules that are written.
//
// Both sides of a box are walked by an address generator each (dma_walk.sv); their runs, and so their granules, may differ.
// What is read waits in a buffer of Credits granules, whose bytes are reserved with the request: so a read that comes
// back always finds room. A write is asked for as soon as its bytes are there. A fill reads nothing. The bytes themselves
// pass beside this unit (read data in order into the buffer, write data out of it).
//
//   * start_i with start_ready_o takes a transfer. done_o comes for one cycle when its last write is acknowledged.
//   * rd_/wr_: requests, valid stays until ready. rd_done_i: the oldest read has come. wr_done_i: the oldest write is over.
//   * reads_o, writes_o: granules asked for since the start: what the transfer costs on each side.
// dma_queue_sva.sv checks both who drives the ports and the unit.

module dma_queue #(
    parameter int unsigned Levels = tpu_spec_pkg::DMA_LEVELS,
    parameter int unsigned AddrBits = 64,
    parameter int unsigned Granule = tpu_spec_pkg::DMA_GRANULE,
    parameter int unsigned Credits = tpu_spec_pkg::DMA_CREDITS,  // granules; at least 2
    localparam int unsigned SizeBits = $clog2(Granule + 1),
    localparam int unsigned BufferBits = $clog2(Granule * Credits + 1),
    localparam int unsigned CreditBits = $clog2(Credits + 1)
) (
    input  logic                clk_i,
    input  logic                rst_ni,
    input  logic                start_i,
    output logic                start_ready_o,
    input  logic                fill_i,                // no source
    input  logic [AddrBits-1:0] src_base_i,
    input  logic [AddrBits-1:0] dst_base_i,
    input  logic [AddrBits-1:0] run_i,                 // bytes, contiguous on both sides
    input  logic [AddrBits-1:0] count_i      [Levels],
    input  logic [AddrBits-1:0] src_stride_i [Levels],
    input  logic [AddrBits-1:0] dst_stride_i [Levels],
    output logic                rd_valid_o,
    input  logic                rd_ready_i,
    output logic [AddrBits-1:0] rd_addr_o,
    output logic [SizeBits-1:0] rd_bytes_o,
    input  logic                rd_done_i,
    output logic                wr_valid_o,
    input  logic                wr_ready_i,
    output logic [AddrBits-1:0] wr_addr_o,
    output logic [SizeBits-1:0] wr_bytes_o,
    input  logic                wr_done_i,
    output logic                done_o,
    output logic [AddrBits-1:0] reads_o,
    output logic [AddrBits-1:0] writes_o
);

  localparam logic [BufferBits-1:0] Capacity = BufferBits'(Granule * Credits);

  logic busy_d, busy_q;  // from the start to done
  logic fill_d, fill_q;
  logic start;
  logic src_busy, src_valid, src_ready;
  logic dst_busy, dst_valid, dst_ready;
  logic [SizeBits-1:0] src_bytes, dst_bytes;
  logic rd_fire, wr_fire;
  logic [BufferBits-1:0] reserved_d, reserved_q;  // bytes of the buffer: asked for and not written
  logic [BufferBits-1:0] arrived_d, arrived_q;    // of them, bytes that are there
  logic [CreditBits-1:0] writing_d, writing_q;    // writes that are not over
  logic [AddrBits-1:0] reads_d, reads_q, writes_d, writes_q;

  // Sizes of the reads on their way, oldest first out.
  logic [SizeBits-1:0] size_d[Credits], size_q[Credits];
  logic [CreditBits-1:0] reading_d, reading_q;  // how many

  assign start = start_i && start_ready_o;
  assign start_ready_o = !busy_q;

  dma_walk #(
      .Levels(Levels),
      .AddrBits(AddrBits),
      .Granule(Granule)
  ) u_src (
      .clk_i,
      .rst_ni,
      .start_i(start && !fill_i),
      .base_i(src_base_i),
      .run_i,
      .count_i,
      .stride_i(src_stride_i),
      .valid_o(src_valid),
      .ready_i(src_ready),
      .addr_o(rd_addr_o),
      .bytes_o(src_bytes),
      .busy_o(src_busy)
  );

  dma_walk #(
      .Levels(Levels),
      .AddrBits(AddrBits),
      .Granule(Granule)
  ) u_dst (
      .clk_i,
      .rst_ni,
      .start_i(start),
      .base_i(dst_base_i),
      .run_i,
      .count_i,
      .stride_i(dst_stride_i),
      .valid_o(dst_valid),
      .ready_i(dst_ready),
      .addr_o(wr_addr_o),
      .bytes_o(dst_bytes),
      .busy_o(dst_busy)
  );

  // A read needs room for its bytes and a place in the list of sizes; both grow by what leaves, never by what enters,
  // while the request stands: so it stands until it is taken.
  assign rd_valid_o = src_valid && reserved_q <= Capacity - BufferBits'(src_bytes) && reading_q != CreditBits'(Credits);
  assign rd_bytes_o = src_bytes;
  assign rd_fire = rd_valid_o && rd_ready_i;
  assign src_ready = rd_fire;

  assign wr_valid_o = dst_valid && (fill_q || arrived_q >= BufferBits'(dst_bytes)) && writing_q != CreditBits'(Credits);
  assign wr_bytes_o = dst_bytes;
  assign wr_fire = wr_valid_o && wr_ready_i;
  assign dst_ready = wr_fire;

  assign done_o = busy_q && !src_busy && !dst_busy && writing_q == CreditBits'(wr_done_i);
  assign reads_o = reads_q;
  assign writes_o = writes_q;

  always_comb begin
    busy_d = start ? 1'b1 : (done_o ? 1'b0 : busy_q);
    fill_d = start ? fill_i : fill_q;
    reserved_d = reserved_q + (rd_fire ? BufferBits'(src_bytes) : '0);
    arrived_d = arrived_q + (rd_done_i ? BufferBits'(size_q[0]) : '0);
    if (wr_fire && !fill_q) begin
      reserved_d = reserved_d - BufferBits'(dst_bytes);
      arrived_d = arrived_d - BufferBits'(dst_bytes);
    end
    writing_d = writing_q + CreditBits'(wr_fire) - CreditBits'(wr_done_i);
    reads_d = start ? '0 : reads_q + AddrBits'(rd_fire);
    writes_d = start ? '0 : writes_q + AddrBits'(wr_fire);

    size_d = size_q;
    reading_d = reading_q;
    if (rd_done_i) begin
      for (int unsigned i = 0; i + 1 < Credits; i++) size_d[i] = size_q[i+1];
      reading_d = reading_d - 1'b1;
    end
    if (rd_fire) begin
      for (int unsigned i = 0; i < Credits; i++) if (reading_d == CreditBits'(i)) size_d[i] = src_bytes;
      reading_d = reading_d + 1'b1;
    end

    if (!rst_ni) begin
      busy_d = 1'b0;
      reserved_d = '0;
      arrived_d = '0;
      writing_d = '0;
      reading_d = '0;
    end
  end

  always_ff @(posedge clk_i) begin
    busy_q <= busy_d;
    fill_q <= fill_d;
    reserved_q <= reserved_d;
    arrived_q <= arrived_d;
    writing_q <= writing_d;
    reads_q <= reads_d;
    writes_q <= writes_d;
    size_q <= size_d;
    reading_q <= reading_d;
  end

endmodule
