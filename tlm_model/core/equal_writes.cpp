// Pages of HBM that several cores write alike.
#include "core/equal_writes.hpp"

#include <algorithm>
#include <cstring>
#include <ranges>

#include "kernel/host_profile.hpp"
#include "kernel/page_set.hpp"

namespace tpu::model {

size_t EqualWrites::Write::page_count() const {
  return (place_.address % PageSet::kPageBytes + place_.bytes - 1) / PageSet::kPageBytes + 1;
}

EqualWrites::Bytes EqualWrites::Write::bytes_of(size_t page) const {
  const uint64_t head = place_.address % PageSet::kPageBytes;  // of the first page, in front
  const uint64_t first = page == 0 ? 0 : page * PageSet::kPageBytes - head;
  const uint64_t end = (page + 1) * PageSet::kPageBytes - head;
  return {.first = first, .count = std::min(end, place_.bytes) - first};
}

bool EqualWrites::Write::compare(size_t page) {
  Page& each = pages_[page];
  each.equal =
      each.other != nullptr && std::memcmp(from(page), each.other, PageSet::kPageBytes) == 0;
  return each.equal;
}

void EqualWrites::begin(Write& write, const Place& place, const uint8_t* from, Job& work) {
  write.place_ = place;
  write.from_ = from;
  write.work_ = &work;
  if (Round* const round = find(place); round != nullptr) {
    follow(write, *round);
  } else {
    lead(write);
  }
}

// A round that the core is not in yet.
EqualWrites::Round* EqualWrites::find(const Place& place) {
  for (const auto& [address, latest] : std::views::reverse(by_address_)) {
    if (address != place.address) {
      continue;
    }
    Round& round = *latest;
    const Place& other = round.place;
    if (other.bytes == place.bytes && other.gang == place.gang && other.step == place.step &&
        std::ranges::find(round.members, place.hbm) == round.members.end()) {
      return &round;
    }
  }
  return nullptr;
}

void EqualWrites::lead(Write& write) {
  if (rounds_.size() >= kMostRounds && rounds_.back().leader == nullptr) {
    rounds_.splice(rounds_.begin(), rounds_, std::prev(rounds_.end()));
    std::erase_if(by_address_, [&](const auto& known) { return known.second == &rounds_.front(); });
  } else {
    rounds_.emplace_front();
  }
  Round& round = rounds_.front();
  by_address_.emplace_back(write.place_.address, &round);
  round.place = write.place_;
  round.leader = &write;
  round.members.assign(1, write.place_.hbm);
  round.replaced.clear();
  round.written.clear();
  for (size_t page = 0; page < write.page_count(); ++page) {
    round.replaced.push_back(write.place_.hbm->version(write.address_of(page)));
  }
  write.round_ = &round;
}

void EqualWrites::follow(Write& write, Round& round) {
  round.members.push_back(write.place_.hbm);
  write.other_ = round.place.hbm;
  for (size_t i = 0; i < write.page_count(); ++i) {
    Write::Page page{.version = round.written[i]};
    const uint64_t address = write.address_of(i);
    const bool whole = write.bytes_of(i).count == PageSet::kPageBytes;
    if (!whole || page.version == 0 || write.other_->version(address) != page.version) {
      write.pages_.push_back(page);
      continue;
    }
    page.other = round.leader != nullptr
                     ? round.leader->from(i)
                     : write.other_->hold(write.held_, address, PageSet::kPageBytes, true);
    const uint64_t own = write.place_.hbm->version(address);
    page.left_out = page.other != nullptr && own != 0 && own == round.replaced[i];
    write.pages_.push_back(page);
  }
  if (round.leader != nullptr) {
    write.leader_ = round.leader;
    round.leader->followers_.push_back(&write);
  }
}

void EqualWrites::opened(Write& write) {
  for (size_t page = 0; write.round_ != nullptr && page < write.page_count(); ++page) {
    write.round_->written.push_back(write.place_.hbm->version(write.address_of(page)));
  }
}

void EqualWrites::settle(Write& write) {
  if (!write.followers_.empty() || write.follows()) {
    pool_.join(*write.work_);  // followers will not wait for it
  }
  for (Write* follower : write.followers_) {
    pool_.join(*follower->work_);
    follower->leader_ = nullptr;
  }
  write.followers_.clear();
  if (write.round_ != nullptr) {
    write.round_->leader = nullptr;
    write.round_ = nullptr;
  }
  if (!write.follows()) {
    return;
  }
  if (write.leader_ != nullptr) {
    pool_.join(*write.leader_->work_);  // it may still write
    std::erase(write.leader_->followers_, &write);
    write.leader_ = nullptr;
  }
  share(write);
  write.other_->release(write.held_);
  write.pages_.clear();
}

// Pages that the other HBM has as they were written there become pages of this one too, zeros that
// it has dropped are dropped here; of the rest, those that nobody has written get their bytes after
// all.
void EqualWrites::share(Write& write) {
  HbmIf& hbm = *write.place_.hbm;
  bool missing = false;
  for (size_t i = 0; i < write.pages_.size(); ++i) {
    Write::Page& page = write.pages_[i];
    const uint64_t address = write.address_of(i);
    const uint64_t version = write.other_->version(address);
    if (page.equal && version == page.version) {
      hbm.share(*write.other_, address);
      HostProfile::count(HostWork::kShared, PageSet::kPageBytes);
      page.left_out = false;
    } else if (page.equal && version == 0) {
      hbm.write(address, {write.from(i), PageSet::kPageBytes});
      page.left_out = false;
    } else {
      page.left_out = page.left_out || page.equal;
      missing = missing || page.left_out;
    }
  }
  if (missing) {
    bring(write);
  }
}

void EqualWrites::bring(Write& write) {
  HbmIf& hbm = *write.place_.hbm;
  pages_.open(write.place_.address, write.place_.address + write.place_.bytes - 1);
  copies_.clear();
  for (size_t i = 0; i < write.pages_.size(); ++i) {
    if (write.leaves_out(i)) {
      hbm.pin(pages_, write.address_of(i), PageSet::kPageBytes, true, true);
      copies_.add(pages_.at(write.address_of(i)), write.from(i), PageSet::kPageBytes);
    }
  }
  copies_.run_with(pool_);
  hbm.unpin(pages_);
}

}  // namespace tpu::model
