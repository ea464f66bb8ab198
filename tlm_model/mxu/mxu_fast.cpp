// Blocking of the fast engine: column blocks outermost, then row blocks, then K blocks (ascending,
// so that every output sums in the specified order); packing once per block, kernels inside. See
// mxu_fast.hpp.
#include "mxu/mxu_fast.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "arith/flush_mode.hpp"
#include "kernel/host_pages.hpp"
#include "kernel/host_profile.hpp"
#include "mxu/mxu_fast_plan.hpp"
#include "mxu/mxu_kernel_table.hpp"
#include "mxu/mxu_packed.hpp"
#include "mxu/mxu_scalar.hpp"

namespace tpu::model {
namespace {

// Scratch of one thread; grows, never shrinks, so that no job allocates in the steady state.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { release(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* get(size_t bytes) {
    if (bytes > size_) {
      release();
      const size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
      data_ = map_host_pages(size);
      size_ = size;
    }
    return data_;
  }

 private:
  void release() {
    if (size_ != 0) {
      unmap_host_pages(data_, size_);
      size_ = 0;
    }
  }
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Consecutive segments whose operands are packed together.
struct KBlock {
  int64_t first;
  int64_t count;
  int64_t k;
  bool packed;  // in a place of its own
  bool rhs_finite;
};

// What a thread keeps between jobs.
struct Workspace {
  std::vector<KBlock> k_blocks;
  MxuFastPlan plan;
  Scratch lhs, rhs, rounded, bits;
  std::vector<const float*> row_at;
  std::vector<int64_t> segment_at;
  std::vector<MxuBlockArgs> block_args;
  std::vector<int64_t> panels_done;  // by row block, of those asked over all of K
  std::vector<MxuLhsRange> ranges;   // by job
};

Workspace& workspace() {
  thread_local Workspace space;
  return space;
}

// One job on one kernel set, or the rows of several that have the same rhs. Blocks of columns
// outermost, then of rows, then K: what a block of rows reads and sums stays in the second-level
// cache over all of K, while packed rhs streams by. rhs is packed once a column block when several
// blocks of rows use it.
class FastRun {
 public:
  FastRun(std::span<const MxuJob> jobs, const MxuKernelSet& set, Workspace& space)
      : set_(set), space_(space), plan_(space.plan) {
    const MxuJob& job = jobs.front();
    args_.lhs = job.lhs;
    args_.rhs = job.rhs;
    args_.out = job.out;
    args_.lhs_is_bf16 = job.lhs_is_bf16;
    args_.rhs_is_bf16 = job.rhs_is_bf16;
    args_.k_rhs = plan_.k_rhs.data();
    args_.pads = !plan_.segments.empty() && plan_.segments.back().pad;
    args_.n_rhs_stride = job.n_rhs_stride[1];
    args_.n_out_stride = job.n_out_stride[1];
    rows_ = static_cast<int64_t>(plan_.row_lhs.size());
    space.row_at.resize(plan_.row_lhs.size());
    space.segment_at.resize(plan_.segments.size());
    choose_k_step(job);
    ask(job);
    place_lhs(job);
    choose_row_blocks(job);
    share_rhs(job);
  }

  void run(bool accumulate) {
    const auto panel_count = static_cast<int64_t>(plan_.panels.size());
    make_k_blocks();
    space_.panels_done.clear();
    const int64_t step = panels_at_once();
    for (int64_t p = 0; p < panel_count; p += step) {
      args_.panels = plan_.panels.data() + p;
      args_.panel_count = std::min(step, panel_count - p);
      const int64_t outer = rows_at_once();
      const int64_t first = std::min(over_k_ ? block_rows_ : outer, rows_);
      keep_ = rows_ > first;
      for (KBlock& block : space_.k_blocks) {
        block.packed = false;
      }
      by_k_blocks(0, first, accumulate, p == 0);
      for (int64_t row = first; row < rows_; row += outer) {
        const int64_t end = std::min(row + outer, rows_);
        if (over_k_) {
          multiply_over_k(row, end, accumulate);
        }
        by_k_blocks(row, end, accumulate, p == 0);
      }
    }
    count_shared_rhs();
  }

 private:
  // What others pack, too, if it is not shared in the end.
  void ask(const MxuJob& job) {
    lhs_again_ = job.packed_lhs != nullptr && job.packed_lhs->ask();
    rhs_again_ = job.packed_rhs != nullptr && job.packed_rhs->ask();
  }

  // All of rhs at a place that others read, too: in pieces of some panels by some segments.
  void share_rhs(const MxuJob& job) {
    constexpr int64_t kPiecePanels = 4;
    if (job.packed_rhs == nullptr) {
      return;
    }
    const auto panels = static_cast<int64_t>(plan_.panels.size());
    const auto segments = static_cast<int64_t>(plan_.segments.size());
    const bool any = set_.rhs_piece != 0;  // pieces do not depend on blocks
    piece_panels_ = any ? kPiecePanels : panels_at_once();
    piece_segments_ = any ? set_.rhs_piece : k_step_;
    segment_pieces_ = (segments + piece_segments_ - 1) / piece_segments_;
    const int64_t panel_pieces = (panels + piece_panels_ - 1) / piece_panels_;
    shared_ =
        job.packed_rhs->open({reinterpret_cast<intptr_t>(&set_), panels, segments,
                              any ? 0 : piece_panels_, any ? 0 : piece_segments_},
                             set_.rhs_bytes(panels, segments), panel_pieces * segment_pieces_);
    rhs_again_ = rhs_again_ && shared_ == nullptr;
  }

  // Finds lhs, or a range of each job's that is rounded once, in the form that kernels read. `job`:
  // the first, which places count from.
  void place_lhs(const MxuJob& job) {
    if (plan_.lhs_in_place(job, set_)) {
      const int64_t first = plan_.row_lhs.front() + plan_.segments.front().lhs_offset;
      point_rows(reinterpret_cast<const float*>(job.lhs + first), first, kMxuSlotBytes,
                 {.first = 0, .count = plan_.row_lhs.size()});
      point_segments(kMxuSlotBytes);
    } else if (set_.round_range != nullptr) {
      space_.ranges.clear();
      int64_t slots = 0;
      for (const MxuRows& rows : plan_.job_rows) {
        space_.ranges.push_back(plan_.lhs_range(job, rows, set_));
        if (!space_.ranges.back().use) {
          return;
        }
        slots += slots_of(space_.ranges.back());
      }
      round_lhs(job, slots);
    }
  }

  // Of a rounded range; whole bytes of its bits.
  int64_t slots_of(const MxuLhsRange& range) const {
    constexpr int64_t kGranule = 16;
    return (range.count / set_.slot_terms + 8 + kGranule - 1) / kGranule * kGranule;
  }

  void round_lhs(const MxuJob& job, int64_t slots) {
    if (space_.ranges.size() == 1 && job.packed_lhs != nullptr && round_shared_lhs(job, slots)) {
      return;
    }
    const HostTimer timer(HostWork::kMxuPack, bytes_of_ranges(job));
    count_again(lhs_again_, bytes_of_ranges(job));
    auto* to = static_cast<float*>(space_.rounded.get(static_cast<size_t>(slots) * sizeof(float)));
    mark_lhs(to, slots * set_.slot_terms);
    const int64_t slot_bytes = job.lhs_element() * set_.slot_terms;
    uint8_t* bits = args_.lhs_bits;
    for (size_t i = 0; i < space_.ranges.size(); ++i) {
      const MxuLhsRange& range = space_.ranges[i];
      set_.round_range(job.lhs + range.first, job.lhs_is_bf16, range.count, to, bits);
      point_rows(to, range.first, slot_bytes, plan_.job_rows[i]);
      to += slots_of(range);
      bits += bits == nullptr ? 0 : slots_of(range) / 8;
    }
    point_segments(slot_bytes);
  }

  // The same once for all who read it.
  bool round_shared_lhs(const MxuJob& job, int64_t slots) {
    constexpr int64_t kPiece = 32 << 10;  // elements
    const MxuLhsRange& range = space_.ranges.front();
    const auto bytes = static_cast<size_t>(slots) * sizeof(float);
    const auto bits = skips_zeros_ ? static_cast<size_t>(slots * set_.slot_terms / 8 + 16) : 0;
    const int64_t pieces = (range.count + kPiece - 1) / kPiece;
    MxuPackedOrder* const order = job.packed_lhs->open(
        {reinterpret_cast<intptr_t>(&set_), range.first, range.count, skips_zeros_ ? 1 : 0, 0},
        bytes + bits, pieces);
    if (order == nullptr) {
      return false;
    }
    auto* const to = reinterpret_cast<float*>(order->data());
    if (skips_zeros_) {
      args_.lhs_first = to;
      args_.lhs_bits = order->data() + bytes;
    }
    const int64_t element = job.lhs_element();
    int64_t rounded = 0;
    const auto pack = [&](int64_t piece) {
      const int64_t first = piece * kPiece;
      const int64_t count = std::min(kPiece, range.count - first);
      const HostTimer timer(HostWork::kMxuPack, static_cast<uint64_t>(count * element));
      const int64_t slot = first / set_.slot_terms;
      set_.round_range(job.lhs + range.first + first * element, job.lhs_is_bf16, count, to + slot,
                       skips_zeros_ ? args_.lhs_bits + slot / 8 : nullptr);
      rounded += count;
      return false;
    };
    order->need(
        pieces, [](int64_t i) { return i; }, pack);
    count_shared(static_cast<uint64_t>((range.count - rounded) * element));
    const int64_t slot_bytes = element * set_.slot_terms;
    point_rows(to, range.first, slot_bytes, plan_.job_rows.front());
    point_segments(slot_bytes);
    lhs_again_ = false;
    return true;
  }

  static void count_again(bool again, uint64_t bytes) {
    if (again) {
      HostProfile::count(HostWork::kMxuAgain, bytes);
    }
  }
  static void count_shared(uint64_t bytes) {
    if (bytes != 0) {
      HostProfile::count(HostWork::kMxuShared, bytes);
    }
  }

  uint64_t bytes_of_ranges(const MxuJob& job) const {
    int64_t count = 0;
    for (const MxuLhsRange& range : space_.ranges) {
      count += range.count;
    }
    return static_cast<uint64_t>(count * job.lhs_element());
  }

  // These rows point to slots from `slots` on, each of `bytes` (a power of two) of lhs from `first`
  // on.
  void point_rows(const float* slots, int64_t first, int64_t bytes, const MxuRows& rows) {
    const int64_t base = plan_.segments.front().lhs_offset - first;
    const int shift = std::countr_zero(static_cast<uint64_t>(bytes));
    const float** const row_at = space_.row_at.data();
    for (size_t row = rows.first; row < rows.first + rows.count; ++row) {
      row_at[row] = slots + ((plan_.row_lhs[row] + base) >> shift);
    }
  }

  void point_segments(int64_t bytes) {
    const int64_t base = plan_.segments.front().lhs_offset;
    for (size_t s = 0; s < space_.segment_at.size(); ++s) {
      space_.segment_at[s] = (plan_.segments[s].lhs_offset - base) / bytes;
    }
    placed_ = true;
  }

  void choose_k_step(const MxuJob& job) {
    const auto segments = static_cast<int64_t>(plan_.segments.size());
    const MxuKernelChoice choice = choose_mxu_kernel(set_, job, rows_, segments);
    few_rows_ = choice.few_rows;
    skips_zeros_ = choice.sparse;
    k_step_ = std::min(few_rows_ ? set_.few_rows_segments : set_.block_segments, segments);
  }

  void choose_row_blocks(const MxuJob& job) {
    constexpr int64_t kLhsRoom = 512 * 1024;  // of packed rows: a part of the second-level cache
    constexpr int64_t kRowGranule = 32;
    constexpr size_t kFewSegments = 4;
    constexpr int64_t kManyBytes = 1 << 20;  // of results
    over_k_ = skips_zeros_ && placed_;
    block_rows_ = set_.block_rows;
    if (!placed_) {
      const int64_t room = kLhsRoom / static_cast<int64_t>(set_.lhs_bytes(1, k_step_));
      block_rows_ = std::min(block_rows_, std::max(room / kRowGranule, int64_t{1}) * kRowGranule);
    }
    args_.stream_out = !job.accumulate && plan_.segments.size() <= kFewSegments &&
                       rows_ * job.n() * 4 >= kManyBytes;
  }

  // Where the bits of `count` elements of lhs go: one for each slot.
  void mark_lhs(const float* first, int64_t count) {
    if (!skips_zeros_) {
      return;
    }
    args_.lhs_first = first;
    args_.lhs_bits = static_cast<uint8_t*>(space_.bits.get(static_cast<size_t>(count / 8 + 16)));
  }

  void make_k_blocks() {
    const auto segment_count = static_cast<int64_t>(plan_.segments.size());
    space_.k_blocks.clear();
    for (int64_t s = 0; s < segment_count; s += k_step_) {
      KBlock block{.first = s,
                   .count = std::min(k_step_, segment_count - s),
                   .k = 0,
                   .packed = false,
                   .rhs_finite = false};
      add_terms(block);
      space_.k_blocks.push_back(block);
    }
  }

  // As many as packed rhs of all K may have room for; few where lhs needs no packing for each
  // column block, so that more rows stay in the cache together.
  int64_t panels_at_once() const {
    constexpr int64_t kRoom = int64_t{4} << 20;
    const auto segments = static_cast<int64_t>(plan_.segments.size());
    const auto each = static_cast<int64_t>(set_.rhs_bytes(1, few_rows_ ? k_step_ : segments));
    return std::clamp<int64_t>((placed_ ? set_.placed_rhs_room : kRoom) / each, 1,
                               placed_ ? set_.placed_panels : set_.block_panels);
  }

  // Rows whose running values take a part of the second-level cache; whole row blocks.
  int64_t rows_at_once() const {
    constexpr int64_t kRoom = 128 * 1024;
    const int64_t row_bytes = args_.panel_count * set_.nr * static_cast<int64_t>(sizeof(float));
    return std::clamp<int64_t>(kRoom / row_bytes / block_rows_, 1, set_.outer_rows / block_rows_) *
           block_rows_;
  }

  void use(const KBlock& block, bool accumulate) {
    args_.segments = plan_.segments.data() + block.first;
    args_.segment_at = space_.segment_at.data() + block.first;
    args_.segment_count = block.count;
    args_.segments_left = static_cast<int64_t>(plan_.segments.size()) - block.first;
    args_.k = block.k;
    args_.rhs_pitch = rhs_pitch(block);
    args_.zero_start = block.first == 0 && !accumulate;
    args_.last = block.first + block.count == static_cast<int64_t>(plan_.segments.size());
    args_.rhs_finite = block.rhs_finite;
  }

  // Has the rhs that is packed behind that of K block i fetched: of the next one, or of the first
  // one for the panels that follow.
  void fetch_behind(size_t i) {
    const bool end = i + 1 == space_.k_blocks.size();
    if (shared_ != nullptr && end) {
      args_.next_segment_count = 0;  // others may have packed it
      return;
    }
    const KBlock& next = space_.k_blocks[end ? 0 : i + 1];
    args_.next_segments = plan_.segments.data() + next.first;
    args_.next_segment_count = next.count;
    args_.next_panels = args_.panels + (end ? args_.panel_count : 0);
    args_.next_panel_count = plan_.panels.data() + plan_.panels.size() - args_.next_panels;
  }

  // Place of a block's packed rhs.
  void* packed_rhs(const KBlock& block) {
    if (shared_ != nullptr) {
      return shared_place(block.first);
    }
    const auto segments = keep_ ? static_cast<int64_t>(plan_.segments.size()) : block.count;
    auto* base = static_cast<uint8_t*>(space_.rhs.get(set_.rhs_bytes(args_.panel_count, segments)));
    return base + (keep_ ? set_.rhs_bytes(args_.panel_count, block.first) : 0);
  }

  uint64_t rhs_bytes_read(const KBlock& block) const {
    int64_t columns = 0;
    for (int64_t p = 0; p < args_.panel_count; ++p) {
      columns += args_.panels[p].count;
    }
    return static_cast<uint64_t>(block.k * columns) * (args_.rhs_is_bf16 ? 2 : 4);
  }

  int64_t rhs_pitch(const KBlock& block) const {
    return shared_ != nullptr ? static_cast<int64_t>(plan_.segments.size()) : block.count;
  }

  // Where the shared rhs of the panels in use is packed from a segment on.
  uint8_t* shared_place(int64_t segment) const {
    const int64_t first_panel = args_.panels - plan_.panels.data();
    return shared_->data() +
           set_.rhs_bytes(first_panel, static_cast<int64_t>(plan_.segments.size())) +
           set_.rhs_bytes(set_.rhs_piece != 0 ? 1 : args_.panel_count, segment);
  }

  // Packs what nobody has packed of a K block, and waits for the rest.
  void need_rhs(KBlock& block) {
    const int64_t panel = args_.panels - plan_.panels.data();
    const int64_t first_row = panel / piece_panels_;
    const int64_t rows = (panel + args_.panel_count - 1) / piece_panels_ - first_row + 1;
    const int64_t first = block.first / piece_segments_;
    const int64_t columns = (block.count + piece_segments_ - 1) / piece_segments_;
    const auto at = [&](int64_t i) {
      return (first_row + i / columns) * segment_pieces_ + first + i % columns;
    };
    const MxuPanel* const panels = args_.panels;
    const int64_t panel_count = args_.panel_count;
    block.rhs_finite =
        shared_->need(rows * columns, at, [this](int64_t piece) { return pack_piece(piece); });
    block.packed = true;
    args_.panels = panels;
    args_.panel_count = panel_count;
  }

  bool pack_piece(int64_t piece) {
    const auto panels = static_cast<int64_t>(plan_.panels.size());
    const auto segments = static_cast<int64_t>(plan_.segments.size());
    const int64_t panel = piece / segment_pieces_ * piece_panels_;
    args_.panels = plan_.panels.data() + panel;
    args_.panel_count = std::min(piece_panels_, panels - panel);
    const int64_t segment = piece % segment_pieces_ * piece_segments_;
    KBlock part{.first = segment,
                .count = std::min(piece_segments_, segments - segment),
                .k = 0,
                .packed = false,
                .rhs_finite = false};
    add_terms(part);
    const uint64_t bytes = rhs_bytes_read(part);
    packed_here_ += bytes;
    const HostTimer timer(HostWork::kMxuPack, bytes);
    use(part, true);
    args_.packed_rhs = shared_place(segment);
    return set_.pack_rhs(args_);
  }

  // Of its segments.
  void add_terms(KBlock& block) const {
    for (int64_t i = 0; i < block.count; ++i) {
      block.k += plan_.segments[static_cast<size_t>(block.first + i)].k;
    }
  }

  // What others have packed.
  void count_shared_rhs() {
    if (shared_ != nullptr) {
      args_.panels = plan_.panels.data();
      args_.panel_count = static_cast<int64_t>(plan_.panels.size());
      KBlock all{.first = 0,
                 .count = static_cast<int64_t>(plan_.segments.size()),
                 .k = 0,
                 .packed = false,
                 .rhs_finite = false};
      add_terms(all);
      const uint64_t bytes = rhs_bytes_read(all);
      count_shared(bytes - std::min(packed_here_, bytes));
    }
  }

  void pack_rhs(KBlock& block) {
    if (shared_ != nullptr) {
      need_rhs(block);
      return;
    }
    const HostTimer timer(HostWork::kMxuPack, rhs_bytes_read(block));
    count_again(rhs_again_, rhs_bytes_read(block));
    use(block, true);
    args_.packed_rhs = packed_rhs(block);
    block.rhs_finite = set_.pack_rhs(args_);
    block.packed = keep_;
  }

  // With all of K packed, rows of many zeros are computed first, in one go. Notes the panels that
  // are done.
  void multiply_over_k(int64_t begin, int64_t end, bool accumulate) {
    for (int64_t row = begin; row < end; row += block_rows_) {
      space_.block_args.clear();
      use_rows(row, end);
      for (const KBlock& block : space_.k_blocks) {
        use(block, accumulate);
        args_.packed_rhs = packed_rhs(block);
        space_.block_args.push_back(args_);
      }
      space_.panels_done.push_back(set_.multiply_sparse(
          space_.block_args.data(), static_cast<int64_t>(space_.block_args.size())));
    }
  }

  // Rows [begin, end), one K block after the other: packs rhs unless that is done.
  void by_k_blocks(int64_t begin, int64_t end, bool accumulate, bool first_panels) {
    for (size_t i = 0; i < space_.k_blocks.size(); ++i) {
      KBlock& block = space_.k_blocks[i];
      if (!block.packed) {
        pack_rhs(block);
        fetch_behind(i);
      }
      use(block, accumulate);
      args_.packed_rhs = packed_rhs(block);
      row_blocks(begin, end, first_panels);
    }
    space_.panels_done.clear();
  }

  void use_rows(int64_t row, int64_t end) {
    args_.row_lhs = plan_.row_lhs.data() + row;
    args_.row_out = plan_.row_out.data() + row;
    args_.row_at = space_.row_at.data() + row;
    args_.rows = std::min(block_rows_, end - row);
    args_.rows_left = rows_ - row;
  }

  // Rows [begin, end) with the panels that are packed. With one K block, a single row block stays
  // packed over all panels.
  void row_blocks(int64_t begin, int64_t end, bool first_panels) {
    const bool packed = !first_panels && rows_ <= block_rows_ && space_.k_blocks.size() == 1;
    for (int64_t row = begin; row < end; row += block_rows_) {
      const auto block = static_cast<size_t>((row - begin) / block_rows_);
      const bool asked = block < space_.panels_done.size();
      args_.first_panel = asked ? space_.panels_done[block] : 0;
      use_rows(row, end);
      if (args_.first_panel == args_.panel_count) {
        note_use();
        continue;
      }
      if (!placed_ && !packed) {
        const HostTimer timer(HostWork::kMxuPack, static_cast<uint64_t>(args_.rows * args_.k) *
                                                      (args_.lhs_is_bf16 ? 2 : 4));
        count_again(lhs_again_,
                    static_cast<uint64_t>(args_.rows * args_.k) * (args_.lhs_is_bf16 ? 2 : 4));
        const size_t bytes = set_.lhs_bytes(args_.rows, args_.segment_count);
        args_.packed_lhs = space_.lhs.get(bytes);
        mark_lhs(static_cast<const float*>(args_.packed_lhs),
                 static_cast<int64_t>(bytes / sizeof(float)));
        set_.pack_lhs(args_);
      }
      if (skips_zeros_ && !asked) {
        args_.first_panel = set_.multiply_sparse(&args_, 1);
      }
      set_.multiply(args_);
      note_use();
      args_.next_segment_count = 0;
    }
  }

  // Of a block that is done: which kernels computed it, if that is counted.
  void note_use() {
    if (MxuKernelUse* const use = MxuKernelUse::current()) [[unlikely]] {
      count_terms(*use);
    }
  }

  void count_terms(MxuKernelUse& use) {
    const auto terms = [this](int64_t from, int64_t to) {
      int64_t columns = 0;
      for (int64_t p = from; p < to; ++p) {
        columns += args_.panels[p].count;
      }
      return args_.rows * args_.k * columns;
    };
    if (args_.first_panel > 0) {
      use.add(set_, MxuKernelKind::kSparse, terms(0, args_.first_panel));
    }
    if (args_.first_panel < args_.panel_count) {
      const bool is_short = set_.is_short != nullptr && set_.is_short(args_);
      use.add(set_, is_short ? MxuKernelKind::kShort : MxuKernelKind::kDense,
              terms(args_.first_panel, args_.panel_count));
    }
  }

  const MxuKernelSet& set_;
  Workspace& space_;
  const MxuFastPlan& plan_;
  MxuBlockArgs args_{};
  int64_t rows_ = 0;
  bool placed_ = false;    // lhs needs no packing
  bool few_rows_ = false;  // K blocks are short
  int64_t k_step_ = 0;     // segments of a K block
  int64_t block_rows_ = 0;
  bool skips_zeros_ = false;
  bool over_k_ = false;  // multiply_sparse gets all of K, behind the first block of rows
  bool keep_ = false;    // every K block's packed rhs has a place of its own
  MxuPackedOrder* shared_ = nullptr;  // rhs, if it is packed for others, too
  int64_t piece_panels_ = 0;
  int64_t piece_segments_ = 0;
  int64_t segment_pieces_ = 0;  // of a panel
  uint64_t packed_here_ = 0;    // of rhs that is shared
  bool lhs_again_ = false;      // others pack it, too, for themselves
  bool rhs_again_ = false;
};

}  // namespace

MxuSimd mxu_simd_from_name(const std::string& name) {
  const std::vector<MxuSimd> host = base::host_simd();
  if (name.empty() || name == "auto") {
    return host.back();
  }
  std::string names;
  for (const MxuSimd simd : host) {
    if (name == base::simd_name(simd)) {
      return simd;
    }
    names += std::string(names.empty() ? "" : ", ") + base::simd_name(simd);
  }
  throw std::runtime_error("SimOptions::simd " + name + ": expected one of " + names +
                           " on this host");
}

const MxuKernelSet* mxu_kernels(MxuSimd simd) {
  switch (simd) {
#if defined(__x86_64__)
    case MxuSimd::kAvx2:
      return mxu_kernels_avx2();
    case MxuSimd::kAvx512:
      return mxu_kernels_avx512();
    case MxuSimd::kAvx512Bf16:
      return mxu_kernels_avx512_bf16();
    case MxuSimd::kAmx:
      return mxu_kernels_amx();
    case MxuSimd::kScalar:
    case MxuSimd::kNeon:
      break;
#else
    case MxuSimd::kNeon:
      return mxu_kernels_neon();
    case MxuSimd::kScalar:
    case MxuSimd::kAvx2:
    case MxuSimd::kAvx512:
    case MxuSimd::kAvx512Bf16:
    case MxuSimd::kAmx:
      break;
#endif
  }
  return nullptr;
}

MxuFastEngine::MxuFastEngine(const spec::MxuShape& shape, MxuSimd simd)
    : MxuFastEngine(shape, mxu_kernels(simd)) {}

MxuFastEngine::MxuFastEngine(const spec::MxuShape& shape, const MxuKernelSet* kernels)
    : shape_(shape) {
  if (shape.sums == spec::MxuSums::kPairs) {
    kernels_ = kernels;
  }
  if (kernels_ == nullptr) {
    reference_ = std::make_unique<MxuScalarEngine>(shape);
  }
}

void MxuFastEngine::run(const MxuJob& job) { run_together({&job, 1}); }

void MxuFastEngine::run_together(std::span<const MxuJob> jobs) {
  if (kernels_ == nullptr) {
    reference_->run_together(jobs);
    return;
  }
  Workspace& space = workspace();
  const MxuKernelSet& kernels = choose_mxu_kernel_set(*kernels_, jobs.front());
  space.plan.make(jobs, shape_, kernels.nr);
  if (space.plan.row_lhs.empty() || space.plan.panels.empty() || space.plan.segments.empty()) {
    return;
  }
  const spec::ScopedFlushMode flush;
  FastRun(jobs, kernels, space).run(jobs.front().accumulate);
}

// Of more rows, what is packed of rhs is used often enough.
uint64_t MxuFastEngine::group(const MxuJob& job) const {
  constexpr int64_t kMostRows = 160;
  return kernels_ == nullptr || job.rows() > kMostRows ? 0 : reinterpret_cast<uintptr_t>(job.rhs);
}

}  // namespace tpu::model
