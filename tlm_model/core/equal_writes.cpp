// Pages of HBM that several cores write alike.
#include "core/equal_writes.hpp"

#include <algorithm>
#include <cstring>
#include <ranges>

#include "kernel/host_profile.hpp"

namespace tpu::model {

size_t EqualWrites::page_count(const Place& place) {
  return (place.address % PageSet::kPageBytes + place.bytes - 1) / PageSet::kPageBytes + 1;
}

EqualWrites::Bytes EqualWrites::bytes_of(const Place& place, size_t page) {
  const uint64_t head = place.address % PageSet::kPageBytes;  // of the first page, in front
  const uint64_t first = page == 0 ? 0 : page * PageSet::kPageBytes - head;
  const uint64_t end = (page + 1) * PageSet::kPageBytes - head;
  return {.first = first, .count = std::min(end, place.bytes) - first};
}

bool EqualWrites::Write::compare(size_t page, const uint8_t* from) {
  Page& each = pages_[page];
  each.equal = each.other != nullptr && std::memcmp(from, each.other, PageSet::kPageBytes) == 0;
  each.zero = each.equal && all_zero(from, PageSet::kPageBytes);
  return each.equal;
}

void EqualWrites::Write::settle() {
  if (!follows()) {
    return;
  }
  pool_->wait(*work_);
  for (size_t i = 0; i < pages_.size(); ++i) {
    const uint64_t address = address_of(place_, i);
    place_.hbm->settled(address, *this);
    if (pages_[i].equal && place_.hbm->version(address) == pages_[i].version) {
      place_.hbm->share(held_, address, pages_[i].zero);
      HostProfile::count(HostWork::kShared, PageSet::kPageBytes);
    }
  }
  other_->release(held_);
  other_ = nullptr;
}

void EqualWrites::begin(Write& write, const Place& place, Job& work, DataUses& touches) {
  if (Round* const round = find(place); round != nullptr) {
    write.place_ = place;
    write.pool_ = &pool_;
    write.work_ = &work;
    follow(write, *round, touches);
  } else {
    lead(place);
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

void EqualWrites::lead(const Place& place) {
  if (rounds_.size() >= kMostRounds) {
    rounds_.splice(rounds_.begin(), rounds_, std::prev(rounds_.end()));
    std::erase_if(by_address_, [&](const auto& known) { return known.second == &rounds_.front(); });
  } else {
    rounds_.emplace_front();
  }
  led_ = &rounds_.front();
  by_address_.emplace_back(place.address, led_);
  led_->place = place;
  led_->members.assign(1, place.hbm);
  led_->written.clear();
}

// What is held stays as the first transfer writes it: whoever writes there gets another page.
void EqualWrites::follow(Write& write, Round& round, DataUses& touches) {
  const Place& place = write.place_;
  round.members.push_back(place.hbm);
  write.other_ = round.place.hbm;
  write.pages_.assign(page_count(place), {});
  for (size_t i = 0; i < write.pages_.size(); ++i) {
    const uint64_t address = address_of(place, i);
    if (bytes_of(place, i).count == PageSet::kPageBytes && round.written[i] != 0 &&
        write.other_->version(address) == round.written[i]) {
      write.pages_[i].other = write.other_->hold(write.held_, address, PageSet::kPageBytes, false);
    }
  }
  before_.clear();
  write.other_->order().find({.low = place.address, .high = place.address + place.bytes}, false,
                             before_);
  touches.follow(before_);
}

void EqualWrites::opened(Write& write) {
  if (led_ != nullptr) {
    for (size_t page = 0; page < page_count(led_->place); ++page) {
      led_->written.push_back(led_->place.hbm->version(address_of(led_->place, page)));
    }
    led_ = nullptr;
    return;
  }
  for (size_t i = 0; i < write.pages_.size(); ++i) {
    const uint64_t address = address_of(write.place_, i);
    write.pages_[i].version = write.place_.hbm->version(address);
    if (write.pages_[i].other != nullptr) {
      write.place_.hbm->expect(address, write);
    }
  }
}

}  // namespace tpu::model
