// HBM page store: sparse contents, sharing, copy-on-write, pins of jobs in flight; random
// operations against a flat copy.
#include "hbm/hbm_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace tpu::model {
namespace {

constexpr uint64_t kPage = kHbmPageBytes;

std::vector<uint8_t> bytes_of(HbmStore& store, uint64_t address, size_t count) {
  std::vector<uint8_t> data(count);
  store.read(address, data);
  return data;
}

// `store` takes the page of `other`.
void share(HbmStore& store, HbmStore& other, uint64_t address) {
  PageSet held;
  other.hold(held, address, kPage);
  store.share(held, address, false);
  other.release(held);
}

TEST(HbmStore, AbsentPagesReadZeroWithoutBeingMade) {
  PagePool pool;
  HbmStore store(pool, 16 * kPage);
  EXPECT_EQ(bytes_of(store, 3, 2 * kPage), std::vector<uint8_t>(2 * kPage, 0));
  EXPECT_EQ(pool.pages_in_use(), 0u);
  EXPECT_FALSE(store.present(0, 16 * kPage));
}

TEST(HbmStore, WholePageCopiesShareUntilWritten) {
  PagePool pool;
  HbmStore a(pool, 16 * kPage);
  HbmStore b(pool, 16 * kPage);
  a.fill(0, 4 * kPage, 0x04030201);
  EXPECT_EQ(pool.pages_in_use(), 4u);
  b.copy_from(a, 0, 8 * kPage, 4 * kPage);
  EXPECT_EQ(pool.pages_in_use(), 4u);
  const std::vector<uint8_t> mark = {9};
  b.write(8 * kPage + 5, mark);
  EXPECT_EQ(pool.pages_in_use(), 5u);
  EXPECT_EQ(bytes_of(b, 8 * kPage + 4, 3), (std::vector<uint8_t>{1, 9, 3}));
  EXPECT_EQ(bytes_of(a, 4, 3), (std::vector<uint8_t>{1, 2, 3}));
  b.fill(8 * kPage, 4 * kPage, 0);  // whole pages of zero are dropped
  EXPECT_EQ(pool.pages_in_use(), 4u);
}

TEST(HbmStore, WrittenZerosNeedNoPages) {
  PagePool pool;
  HbmStore store(pool, 8 * kPage);
  const std::vector<uint8_t> zeros(3 * kPage + 10);
  store.write(kPage - 5, zeros);
  store.fill(kPage - 5, zeros.size(), 0);
  EXPECT_EQ(pool.pages_in_use(), 0u);
  store.fill(0, 5 * kPage, 0x07070707);
  store.write(kPage - 5, zeros);  // pages 1 to 3 whole, parts of 0 and 4
  EXPECT_EQ(pool.pages_in_use(), 2u);
  EXPECT_EQ(bytes_of(store, kPage - 6, 2), (std::vector<uint8_t>{7, 0}));
  EXPECT_EQ(bytes_of(store, kPage - 5, zeros.size()), zeros);
  std::vector<uint8_t> last(kPage);
  last.back() = 1;
  store.write(5 * kPage, last);
  EXPECT_EQ(bytes_of(store, 6 * kPage - 2, 3), (std::vector<uint8_t>{0, 1, 0}));
}

TEST(HbmStore, FreedPagesAreUsedAgainAndCleaned) {
  PagePool pool;
  HbmStore store(pool, 4 * kPage);
  store.fill(0, kPage, 0xffffffff);
  store.fill(0, kPage, 0);
  const std::vector<uint8_t> one = {1};
  store.write(2 * kPage, one);
  EXPECT_EQ(bytes_of(store, 2 * kPage, 3), (std::vector<uint8_t>{1, 0, 0}));
}

// A job that reads keeps the old page when somebody else's write unshares it.
TEST(HbmStore, PinnedPageOutlivesItsOwners) {
  PagePool pool;
  HbmStore a(pool, 4 * kPage);
  HbmStore b(pool, 4 * kPage);
  a.fill(0, kPage, 0x01010101);
  b.copy_from(a, 0, 0, kPage);
  PageSet set;
  set.open(0, kPage - 1);
  a.pin(set, 0, kPage, false, false);
  const std::vector<uint8_t> two(kPage, 2);
  a.write(0, two);
  b.write(0, std::vector<uint8_t>(kPage, 3));
  EXPECT_EQ(*set.at(100), 1);
  EXPECT_EQ(pool.pages_in_use(), 3u);  // b is its last owner, but must not write under the job of a
  a.unpin(set);
  EXPECT_EQ(pool.pages_in_use(), 2u);
}

TEST(HbmStore, WritePinPreventsSharing) {
  PagePool pool;
  HbmStore a(pool, 4 * kPage);
  HbmStore b(pool, 4 * kPage);
  PageSet set;
  set.open(0, kPage - 1);
  a.pin(set, 0, kPage, true, true);
  b.copy_from(a, 0, 0, kPage);
  EXPECT_EQ(pool.pages_in_use(), 2u);
  a.unpin(set);
}

// What a job does that writes `value` to a range, as a transfer by DMA.
void overwrite(HbmStore& store, uint64_t address, uint64_t bytes, uint8_t value) {
  PageSet set;
  set.open(address, address + bytes - 1);
  store.pin(set, address, bytes, true, true);
  for (uint64_t at = address; at < address + bytes; ++at) {
    *set.at(at) = value;
  }
  set.look_for_zeros();
  store.unpin(set);
}

// What is held lies in one piece, and stays as it is when the range is written.
TEST(HbmStore, HeldBytesStayWhileOthersAreWritten) {
  PagePool pool;
  HbmStore store(pool, 64 * kPage);
  for (uint64_t page = 0; page < 12; ++page) {
    overwrite(store, page * kPage, kPage, static_cast<uint8_t>(page + 1));
  }
  PageSet set;
  const uint8_t* const held = store.hold(set, kPage - 10, 2 * kPage);
  ASSERT_NE(held, nullptr);
  overwrite(store, kPage - 100, 3 * kPage, 99);  // pages 1 and 2 whole, 0 and 3 in part
  store.fill(kPage, kPage, 0);
  EXPECT_EQ(held[0], 1);
  EXPECT_EQ(held[10], 2);
  EXPECT_EQ(held[2 * kPage - 1], 3);
  EXPECT_EQ(bytes_of(store, kPage - 101, 2), (std::vector<uint8_t>{1, 99}));
  EXPECT_EQ(bytes_of(store, 2 * kPage, 1), std::vector<uint8_t>{99});
  EXPECT_EQ(pool.pages_in_use(), 11U + 3U);
  store.release(set);
  EXPECT_EQ(pool.pages_in_use(), 11U);
}

TEST(HbmStore, NothingIsHeldThatIsAbsentOrBeingWritten) {
  PagePool pool;
  HbmStore store(pool, 64 * kPage);
  overwrite(store, 0, 20 * kPage, 5);
  PageSet set;
  EXPECT_EQ(store.hold(set, 19 * kPage, 2 * kPage), nullptr);
  PageSet writer;
  writer.open(3 * kPage, 4 * kPage - 1);
  store.pin(writer, 3 * kPage, 100, true, false);
  EXPECT_EQ(store.hold(set, 0, 4 * kPage), nullptr);
  EXPECT_NE(store.hold(set, 0, 3 * kPage), nullptr);
  store.unpin(writer);
  store.release(set);
  EXPECT_NE(store.hold(set, 0, 4 * kPage), nullptr);
  store.release(set);
  EXPECT_EQ(pool.pages_in_use(), 20U);
}

// Two stores that grow by turns, with cuts that are not those of pages.
TEST(HbmStore, RangesLieInOnePieceOfTheHost) {
  PagePool pool;
  HbmStore a(pool, 4096 * kPage);
  HbmStore b(pool, 4096 * kPage);
  constexpr uint64_t kPiece = 9 * kPage + 1234;
  for (uint64_t piece = 0; piece < 40; ++piece) {
    overwrite(a, piece * kPiece, kPiece, 1);
    overwrite(b, piece * kPiece, kPiece, 2);
  }
  for (HbmStore* store : {&a, &b}) {
    PageSet set;
    EXPECT_NE(store->hold(set, 0, 40 * kPiece), nullptr);
    store->release(set);
  }
}

TEST(HbmStore, WholePagesThatAnotherStoreHasAreShared) {
  PagePool pool;
  HbmStore a(pool, 8 * kPage);
  HbmStore b(pool, 8 * kPage);
  std::vector<uint8_t> data(3 * kPage);
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<uint8_t>(i * i / 7 + 1);
  }
  a.write(kPage, data);
  data[2 * kPage + 5] ^= 1;
  b.write(kPage, data);
  EXPECT_EQ(pool.pages_in_use(), 4u);
  EXPECT_EQ(bytes_of(b, kPage, data.size()), data);
  b.write(kPage + 9, std::vector<uint8_t>{77});
  EXPECT_EQ(pool.pages_in_use(), 5u);
  EXPECT_EQ(bytes_of(a, kPage + 9, 1), std::vector<uint8_t>{data[9]});
  PageSet set;
  set.open(5 * kPage, 6 * kPage - 1);
  a.pin(set, 5 * kPage, kPage, true, true);
  std::fill_n(set.at(5 * kPage), kPage, uint8_t{9});
  b.write(5 * kPage, std::vector<uint8_t>(kPage, 9));  // not what a job may still write
  EXPECT_EQ(pool.pages_in_use(), 7u);
  a.unpin(set);
}

// The end of an image, say, that all cores load.
TEST(HbmStore, PartsOfPagesThatAnotherStoreHasAreShared) {
  PagePool pool;
  HbmStore a(pool, 4 * kHbmPageBytes), b(pool, 4 * kHbmPageBytes), c(pool, 4 * kHbmPageBytes);
  std::vector<uint8_t> data(1000, 7);
  for (HbmStore* store : {&a, &b}) {
    store->write(kHbmPageBytes + 40, data);
  }
  EXPECT_EQ(pool.pages_in_use(), 1U);
  EXPECT_EQ(a.version(kHbmPageBytes), b.version(kHbmPageBytes));
  c.write(kHbmPageBytes + 41, data);  // elsewhere
  EXPECT_EQ(pool.pages_in_use(), 2U);
  data[0] = 9;
  b.write(kHbmPageBytes + 40, data);
  std::vector<uint8_t> read(1000);
  a.read(kHbmPageBytes + 40, read);
  EXPECT_EQ(read[0], 7);
  b.read(kHbmPageBytes + 40, read);
  EXPECT_EQ(read, data);
  b.read(kHbmPageBytes, std::span(read).first(40));
  EXPECT_EQ(std::vector<uint8_t>(read.begin(), read.begin() + 40), std::vector<uint8_t>(40, 0));
}

TEST(HbmStore, VersionsTellOfWritesAndPages) {
  PagePool pool;
  HbmStore a(pool, 8 * kPage);
  HbmStore b(pool, 8 * kPage);
  EXPECT_EQ(a.version(0), 0u);
  overwrite(a, 0, 2 * kPage, 1);
  const uint64_t first = a.version(5);
  EXPECT_NE(first, 0u);
  EXPECT_NE(first, a.version(kPage));
  share(b, a, 0);
  EXPECT_EQ(b.version(0), first);
  EXPECT_EQ(pool.pages_in_use(), 2u);
  overwrite(a, 10, 20, 2);
  EXPECT_NE(a.version(0), first);
  EXPECT_EQ(b.version(0), first);
  EXPECT_EQ(bytes_of(b, 10, 1), std::vector<uint8_t>{1});
}

// Bytes that are to come: who looks at them settles them, who overwrites all of them need not.
TEST(HbmStore, PagesToComeAreSettledByReaders) {
  PagePool pool;
  HbmStore first(pool, 4 * kPage);
  HbmStore store(pool, 4 * kPage);
  overwrite(first, 0, 4 * kPage, 5);
  PageSet held;
  ASSERT_NE(first.hold(held, 0, 4 * kPage), nullptr);
  // Takes the first page from `first`.
  class Shares : public PagesToCome {
   public:
    Shares(HbmStore& store, const PageSet& held) : store_(store), held_(held) {}
    void settle() override {
      ++times;
      store_.settled(0, *this);
      store_.share(held_, 0, false);
    }
    int times = 0;

   private:
    HbmStore& store_;
    const PageSet& held_;
  };
  const auto look = [&](const auto& looks) {
    overwrite(store, 0, kPage, 1);
    Shares shares(store, held);
    store.expect(0, shares);
    looks();
    return shares.times;
  };
  const auto pin = [&](uint64_t bytes, bool write) {
    PageSet set;
    set.open(0, bytes - 1);
    store.pin(set, 0, bytes, write, write);
    store.unpin(set);
  };
  EXPECT_EQ(look([&] { EXPECT_EQ(bytes_of(store, 0, 1).front(), 5); }), 1);
  EXPECT_EQ(look([&] { pin(100, false); }), 1);
  EXPECT_EQ(look([&] { pin(100, true); }), 1);
  EXPECT_EQ(look([&] {
              PageSet set;
              EXPECT_EQ(*store.hold(set, 0, kPage), 5);
              store.release(set);
            }),
            1);
  EXPECT_EQ(look([&] { pin(kPage, true); }), 0);
  EXPECT_EQ(look([&] { overwrite(store, kPage, kPage, 2); }), 0);
  first.release(held);
}

// Cores that keep copies of an array write it piece by piece, one of them first, the others to
// pages that they give up later; the old pieces stay until the last has left them.
TEST(HbmStore, SharedRangesThatAreReplacedLieInOnePiece) {
  PagePool pool;
  constexpr uint64_t kPages = 40;
  constexpr uint64_t kPiece = 8;
  HbmStore stores[3] = {HbmStore(pool, 4096 * kPage), HbmStore(pool, 4096 * kPage),
                        HbmStore(pool, 4096 * kPage)};
  const std::vector<uint8_t> data(kPages * kPage, 1);
  for (HbmStore& store : stores) {
    overwrite(store, 0, 3 * kPage, 7);  // what is nobody else's
    store.write(3 * kPage, data);
  }
  for (uint8_t round = 2; round < 8; ++round) {
    for (uint64_t page = 3; page < 3 + kPages; page += kPiece) {
      HbmStore& first = stores[(page / kPiece + round) % 3];
      overwrite(first, page * kPage, kPiece * kPage, round);
      for (HbmStore& store : stores) {
        if (&store != &first) {
          overwrite(store, page * kPage, kPiece * kPage, round);
        }
      }
      for (HbmStore& store : stores) {
        for (uint64_t i = page; i < page + kPiece && &store != &first; ++i) {
          share(store, first, i * kPage);
        }
      }
      overwrite(stores[0], 2000 * kPage, kPiece * kPage, round);  // in between
    }
    for (HbmStore& store : stores) {
      PageSet set;
      const uint8_t* const bytes = store.hold(set, 3 * kPage, kPages * kPage);
      ASSERT_NE(bytes, nullptr) << "round " << int{round};
      EXPECT_EQ(std::count(bytes, bytes + kPages * kPage, round), kPages * kPage);
      store.release(set);
    }
  }
  EXPECT_EQ(pool.pages_in_use(), 3 * 3 + kPages + kPiece);
  EXPECT_LE(pool.pages_touched(), 3 * 3 + 3 * kPages + kPiece);
}

// The host gives memory by huge pages: pages that stand alone lie together.
TEST(HbmStore, ScatteredPagesShareHugePages) {
  PagePool pool;
  HbmStore store(pool, 4096 * kPage);
  std::vector<uint64_t> places;
  for (uint64_t i = 0; i < 60; ++i) {
    overwrite(store, i * 64 * kPage, 4 * kPage, 1);
    PageSet set;
    places.push_back(reinterpret_cast<uintptr_t>(store.hold(set, i * 64 * kPage, 4 * kPage)) >> 21);
    store.release(set);
  }
  std::ranges::sort(places);
  const auto others = std::ranges::unique(places);
  EXPECT_LE(places.size() - others.size(), 60U * 4 / 32 + 2);
}

// What was freed is used again before memory that nobody has touched.
TEST(HbmStore, MemoryGrowsByATenthAtMost) {
  PagePool pool;
  HbmStore store(pool, 4096 * kPage);
  for (uint64_t round = 0; round < 8; ++round) {
    overwrite(store, round * 400 * kPage, 300 * kPage, 3);
    store.fill(round * 400 * kPage, 300 * kPage, 0);
  }
  EXPECT_LE(pool.pages_touched(), 340U);
}

TEST(HbmStore, PagesThatJobsClearAreDropped) {
  PagePool pool;
  HbmStore store(pool, 8 * kPage);
  constexpr uint64_t kPiece = kPage + kPage / 2 + 12;  // cuts that are not those of pages
  for (uint64_t at = 0; at + kPiece <= 8 * kPage; at += kPiece) {
    overwrite(store, at, kPiece, 0);
  }
  EXPECT_EQ(pool.pages_in_use(), 0u);
  EXPECT_LE(pool.pages_touched(), 3u);
  overwrite(store, 0, 3 * kPage, 7);
  overwrite(store, kPage / 2, 2 * kPage, 0);
  EXPECT_EQ(pool.pages_in_use(), 2u);  // page 1 is zero; 0 and 2 have bytes beside the range
  EXPECT_EQ(bytes_of(store, kPage / 2 - 1, 2), (std::vector<uint8_t>{7, 0}));
  EXPECT_EQ(bytes_of(store, kPage, kPage), std::vector<uint8_t>(kPage, 0));
  EXPECT_EQ(bytes_of(store, 5 * kPage / 2 - 1, 2), (std::vector<uint8_t>{0, 7}));
}

// Zeros that are there by chance are not those of the job.
TEST(HbmStore, PagesThatAJobLeavesUnwrittenStay) {
  PagePool pool;
  HbmStore store(pool, 4 * kPage);
  PageSet set;
  set.open(0, 3 * kPage - 1);
  store.pin(set, 0, 3 * kPage, true, true);
  std::memset(set.at(0), 0, kPage);
  std::memset(set.at(kPage), 0, kPage);
  std::memset(set.at(2 * kPage), 0, kPage);
  set.note_unwritten(1);
  set.look_for_zeros();
  store.unpin(set);
  EXPECT_FALSE(store.present(0, kPage));
  EXPECT_TRUE(store.present(kPage, kPage));
  EXPECT_FALSE(store.present(2 * kPage, kPage));
}

// One that turned out to be zero takes no memory.
TEST(HbmStore, SharedPageOfZerosIsDropped) {
  PagePool pool;
  HbmStore a(pool, 4 * kPage);
  HbmStore b(pool, 4 * kPage);
  overwrite(a, kPage, kPage, 3);
  overwrite(b, kPage, kPage, 4);
  PageSet held;
  ASSERT_NE(a.hold(held, kPage, kPage), nullptr);
  b.share(held, kPage, true);
  a.release(held);
  EXPECT_FALSE(b.present(kPage, kPage));
  EXPECT_EQ(pool.pages_in_use(), 1u);
}

TEST(HbmStore, ClearedPageStaysWhileAnotherJobWritesIt) {
  PagePool pool;
  HbmStore store(pool, 4 * kPage);
  PageSet other;
  other.open(0, kPage - 1);
  store.pin(other, 0, 16, true, true);
  overwrite(store, 32, 16, 0);
  *other.at(3) = 5;
  store.unpin(other);
  EXPECT_EQ(bytes_of(store, 2, 3), (std::vector<uint8_t>{0, 5, 0}));
}

TEST(HbmStore, ReaderOfAClearedPageKeepsIt) {
  PagePool pool;
  HbmStore store(pool, 4 * kPage);
  store.fill(0, kPage, 0x01010101);
  PageSet reader;
  reader.open(0, kPage - 1);
  store.pin(reader, 0, kPage, false, false);
  overwrite(store, 0, kPage, 0);
  overwrite(store, 0, kPage, 9);
  EXPECT_EQ(*reader.at(100), 0);
  EXPECT_EQ(bytes_of(store, 100, 1), std::vector<uint8_t>{9});
  store.unpin(reader);
  EXPECT_EQ(pool.pages_in_use(), 1u);
}

TEST(HbmStore, RandomOperationsMatchAFlatMemory) {
  constexpr uint64_t kBytes = 8 * kPage;
  PagePool pool;
  HbmStore stores[2] = {HbmStore(pool, kBytes), HbmStore(pool, kBytes)};
  std::vector<uint8_t> flat[2] = {std::vector<uint8_t>(kBytes), std::vector<uint8_t>(kBytes)};
  std::mt19937_64 random(1);
  for (int round = 0; round < 400; ++round) {
    const size_t to = random() % 2;
    const size_t from = 1 - to;
    uint64_t address = random() % kBytes;
    uint64_t length = random() % std::min<uint64_t>(kBytes - address, 3 * kPage) + 1;
    if (random() % 2 == 0) {  // whole pages
      address = address / kPage * kPage;
      length = std::min((length / kPage + 1) * kPage, kBytes - address);
    }
    switch (random() % 3) {
      case 0: {
        std::vector<uint8_t> data(length, static_cast<uint8_t>(random() % 4));  // often alike
        stores[to].write(address, data);
        std::ranges::copy(data, flat[to].begin() + static_cast<int64_t>(address));
        break;
      }
      case 1: {
        const uint32_t value = random() % 2 == 0 ? 0 : 0x5a5a5a5a;
        stores[to].fill(address, length, value);
        std::fill_n(flat[to].begin() + static_cast<int64_t>(address), length,
                    static_cast<uint8_t>(value));
        break;
      }
      default:
        stores[to].copy_from(stores[from], address, address, length);
        std::copy_n(flat[from].begin() + static_cast<int64_t>(address), length,
                    flat[to].begin() + static_cast<int64_t>(address));
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(bytes_of(stores[i], 0, kBytes), flat[i]);
  }
}

}  // namespace
}  // namespace tpu::model
