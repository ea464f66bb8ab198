// Binary32 addition and bf16 multiply-add with the semantics of docs/numerics.md, as combinational functions.
// Round to nearest even; subnormal inputs are zero; a result below the smallest normal after rounding is zero of its
// sign; NaN results are 0x7fc00000. Branch-free and with 32-bit locals only: synthesis gets plain muxes and adders, and
// a Verilated loop over lanes vectorises. The semantics as C++: spec/arith/f32.hpp.
// TPU_ONE_COPY keeps one C++ copy of each datapath, which instance arrays need to compile in seconds.

package fp32_pkg;

  localparam logic [31:0] CANONICAL_NAN = 32'h7fc0_0000;

  // Adds the number (s1, e1i, m1i) to the binary32 number c. s1: sign in bit 0; e1i: biased exponent, two's complement,
  // may lie outside 1..254; m1i: significand with its leading one in bit 23; z1, inf1, nan1: not zero when it is one.
  function automatic logic [31:0] add_core(input logic [31:0] s1, input logic [31:0] e1i,
                                           input logic [31:0] m1i, input logic [31:0] z1,
                                           input logic [31:0] inf1, input logic [31:0] nan1,
                                           input logic [31:0] c);
    logic [31:0] s2, ex2, fr2, z2, inf2, nan2, m1, e1, m2, e2;
    logic [31:0] diff, neg, swp, mb, ms, eb, d, sh, sub, sum, n, er, r, ef, sg, res, any_inf, any_nan;

    s2   = c >> 31;
    ex2  = (c >> 23) & 32'hff;
    fr2  = c & 32'h007f_ffff;
    z2   = 32'(ex2 == 32'd0);
    inf2 = 32'(ex2 == 32'd255) & 32'(fr2 == 32'd0);
    nan2 = 32'(ex2 == 32'd255) & 32'(fr2 != 32'd0);

    // A zero gets an exponent far below all others, so it never shifts the other operand.
    m1 = (z1 != 0) ? 32'd0 : m1i;
    e1 = (z1 != 0) ? -32'd1024 : e1i;
    m2 = (z2 != 0) ? 32'd0 : (fr2 | 32'h0080_0000);
    e2 = (z2 != 0) ? -32'd1024 : ex2;

    // Larger operand first; the smaller one is aligned with guard, round and sticky bits below it.
    diff = e1 - e2;
    neg  = diff >> 31;
    swp  = neg | (32'(diff == 32'd0) & 32'(m1 < m2));
    mb   = (swp != 0) ? m2 : m1;
    ms   = ((swp != 0) ? m1 : m2) << 3;
    eb   = (swp != 0) ? e2 : e1;
    d    = (neg != 0) ? -diff : diff;
    d    = (d > 32'd27) ? 32'd27 : d;
    sh   = ms >> d[4:0];
    sh   = sh | 32'((sh << d[4:0]) != ms);
    sub  = s1 ^ s2;
    sum  = (mb << 3) + ((sub != 0) ? -sh : sh);

    // Normalise to bit 27.
    n  = sum;
    er = eb + 32'd1;
    er = (n < 32'h0000_1000) ? er - 32'd16 : er;
    n  = (n < 32'h0000_1000) ? n << 16 : n;
    er = (n < 32'h0010_0000) ? er - 32'd8 : er;
    n  = (n < 32'h0010_0000) ? n << 8 : n;
    er = (n < 32'h0100_0000) ? er - 32'd4 : er;
    n  = (n < 32'h0100_0000) ? n << 4 : n;
    er = (n < 32'h0400_0000) ? er - 32'd2 : er;
    n  = (n < 32'h0400_0000) ? n << 2 : n;
    er = (n < 32'h0800_0000) ? er - 32'd1 : er;
    n  = (n < 32'h0800_0000) ? n << 1 : n;

    r  = (n + 32'd7 + ((n >> 4) & 32'd1)) >> 4;
    ef = er + (r >> 24);
    sg = ((swp != 0) ? s2 : s1) << 31;

    // ((er - 1) << 23) + r lets the carry of rounding run into the exponent.
    res = sg | (((er - 32'd1) << 23) + r);
    res = ($signed(ef) >= $signed(32'd255)) ? (sg | 32'h7f80_0000) : res;
    res = ($signed(ef) < $signed(32'd1)) ? sg : res;
    res = (sum == 32'd0) ? ((s1 & s2) << 31) : res;

    any_inf = 32'(inf1 != 0) | inf2;
    any_nan = 32'(nan1 != 0) | nan2 | (32'(inf1 != 0) & inf2 & sub);
    res = (any_inf != 0) ? ((((inf1 != 0) ? s1 : s2) << 31) | 32'h7f80_0000) : res;
    res = (any_nan != 0) ? CANONICAL_NAN : res;
    return res;
  endfunction

  function automatic logic [31:0] add(input logic [31:0] a, input logic [31:0] c);
`ifdef TPU_ONE_COPY
    /* verilator no_inline_task */
`endif
    logic [31:0] ex, fr;
    ex = (a >> 23) & 32'hff;
    fr = a & 32'h007f_ffff;
    return add_core(a >> 31, ex, fr | 32'h0080_0000, 32'(ex == 32'd0),
                    32'(ex == 32'd255) & 32'(fr == 32'd0), 32'(ex == 32'd255) & 32'(fr != 32'd0),
                    c);
  endfunction

  // a * b + c, rounded once; a and b are bf16 in the low half of their words (the high half is ignored). The product of
  // two 8-bit significands is exact and its exponent stays unbounded until after the addition.
  function automatic logic [31:0] fma_bf16(input logic [31:0] a, input logic [31:0] b,
                                           input logic [31:0] c);
`ifdef TPU_ONE_COPY
    /* verilator no_inline_task */
`endif
    logic [31:0] ea, eb, fa, fb, p, top, m, e, z, inf_a, inf_b, nan;
    ea    = (a >> 7) & 32'hff;
    eb    = (b >> 7) & 32'hff;
    fa    = a & 32'h7f;
    fb    = b & 32'h7f;
    p     = (fa | 32'h80) * (fb | 32'h80);
    top   = p >> 15;
    m     = (top != 0) ? p << 8 : p << 9;
    e     = ea + eb - 32'd127 + top;
    z     = 32'(ea == 32'd0) | 32'(eb == 32'd0);
    inf_a = 32'(ea == 32'd255);
    inf_b = 32'(eb == 32'd255);
    nan   = (inf_a & 32'(fa != 32'd0)) | (inf_b & 32'(fb != 32'd0)) | ((inf_a | inf_b) & z);
    return add_core(((a ^ b) >> 15) & 32'd1, e, m, z, inf_a | inf_b, nan, c);
  endfunction

endpackage
