// Messages between boards, and the flows of what they carry.
#include "ici/cut.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "kernel/cycles.hpp"

namespace tpu::model {

Cut::Cut(sc_core::sc_module_name name, uint32_t board, const spec::Links& links, FluidShare& fluid,
         Activity& activity, IciIf& ici)
    : sc_module(name), board_(board), links_(links), fluid_(fluid), activity_(activity), ici_(ici) {
  SC_METHOD(wake_method);
  sensitive << wake_event_;
  dont_initialize();
  SC_METHOD(inbox_method);
  sensitive << inbox_event_;
  dont_initialize();
}

void Cut::connect(std::span<CutEnd* const> boards, std::span<const ResourceId> hbm) {
  boards_.assign(boards.begin(), boards.end());
  hbm_.assign(hbm.begin(), hbm.end());
}

uint64_t Cut::open_flow(const Open& open) {
  const uint32_t from = open.write.from_core;
  const uint32_t to = open.write.to_core;
  const uint64_t number = questions_.begin(from);
  size_t count = 0;
  links_.each_section(links_.way(from, to), from, to, [&](const spec::Links::Section& section) {
    Open part = open;
    part.section = count++;
    send(board_, section.board, now_cycles() + section.entry, {from, number}, part);
  });
  return number;
}

uint64_t Cut::open(const RemoteWrite& write, uint64_t bytes, uint64_t fixed, Answered answered) {
  const uint64_t number = open_flow({.write = write, .bytes = bytes, .fixed = fixed});
  questions_.ask(write.from_core, number,
                 {.answered = std::move(answered), .told = {}, .counts = true});
  ici_.peer(write.from_core).await_answers(1);
  return number;
}

uint64_t Cut::open_copy(uint32_t from_core, uint32_t to_core, uint64_t bytes) {
  Open open{.bytes = bytes, .copy = true};
  open.write.from_core = from_core;
  open.write.to_core = to_core;
  return open_flow(open);
}

// When a command is done can be known less than a latency before: behind a transfer in its own
// board, or to a board that is further away than the other receivers.
void Cut::deliver(CutDelivery delivery, Answered answered) {
  const Id id = {delivery.from_core, questions_.begin(delivery.from_core)};
  if (!delivery.signals.empty() || delivery.copy) {
    const bool counts = !delivery.signals.empty();
    questions_.ask(id.first, id.second,
                   {.answered = std::move(answered), .told = {}, .counts = counts});
    if (counts) {
      ici_.peer(id.first).await_answers(1);
    }
  }
  const uint32_t board = links_.board_of(delivery.to_core);
  const uint64_t at = std::max(
      delivery.at, now_cycles() + links_.control_latency(delivery.from_core, delivery.to_core));
  send(board_, board, at, id, std::move(delivery));
}

void Cut::ask(uint32_t from_core, uint32_t to_core, Told told) {
  const Id id = {from_core, questions_.begin(from_core)};
  questions_.ask(id.first, id.second, {.answered = {}, .told = std::move(told)});
  send(board_, links_.board_of(to_core), now_cycles() + links_.control_latency(from_core, to_core),
       id, Ask{to_core});
}

void Cut::tell_link(uint32_t core, const LinkNews& news) {
  std::set<uint32_t> told = {board_};
  for (uint32_t to = 0; to < links_.cores(); ++to) {  // the first core of each board
    if (const uint32_t board = links_.board_of(to); told.insert(board).second) {
      send(board_, board, now_cycles() + links_.control_latency(core, to),
           {core, questions_.begin(core)}, CutLinkDown{news});
    }
  }
}

void Cut::send(uint32_t from_board, uint32_t to_board, uint64_t at, Id id, Body&& body) {
  const size_t kind = body.index();
  boards_[to_board]->take(
      {.at = at, .board = from_board, .core = id.first, .number = id.second, .kind = kind},
      std::move(body));
}

void Cut::take(const Key& key, Body&& body) {
  const bool answers = std::holds_alternative<Answer>(body);
  if (answers || std::holds_alternative<Tell>(body)) {
    const CutQuestions::Question* const question = questions_.find(key.core, key.number);
    if (question == nullptr || (answers ? !question->answered : !question->told)) {
      lose({key.core, key.number}, "nothing here waits for a message");
    }
  }
  const bool first = inbox_.empty() || key.at < inbox_.first_at();
  inbox_.put(key, std::move(body));
  activity_.begin();
  if (first) {
    wake();
  }
}

// Flows end by timed events of the same cycle, and what they send is to be in order with the rest,
// whichever process the kernel runs first.
void Cut::wake_method() { inbox_event_.notify(sc_core::SC_ZERO_TIME); }

void Cut::wake() {
  if (inbox_.empty()) {
    return;
  }
  const uint64_t wait = inbox_.first_at() - now_cycles();
  if (wait == 0) {
    inbox_event_.notify(sc_core::SC_ZERO_TIME);
  } else {
    wake_event_.notify(from_cycles(wait));
  }
}

void Cut::inbox_method() {
  while (!inbox_.empty() && inbox_.first_at() <= now_cycles()) {
    const CutInbox::Message message = inbox_.take();
    const Id id = {message.key.core, message.key.number};
    if (message.twice) {
      lose(id, "it came twice");
    }
    if (!handle(id, message.key.board, message.slot)) {
      inbox_.drop(message.slot);
    }
    activity_.end();
  }
  wake();
}

bool Cut::handle(const Id& id, uint32_t from_board, CutInbox::Slot slot) {
  Body& body = inbox_.body(slot);
  if (const auto* open = std::get_if<Open>(&body)) {
    begin(id, *open);
  } else if (const auto* passed = std::get_if<Passed>(&body)) {
    this->passed(id, links_.folded() ? passed->board : board_);
  } else if (auto* delivery = std::get_if<CutDelivery>(&body)) {
    return deliver_now_or_later(*delivery, id.second, slot);
  } else if (const auto* answer = std::get_if<Answer>(&body)) {
    const auto asked = questions_.take(id.first, id.second);
    if (!asked) {
      lose(id, "an answer came twice");
    }
    asked->answered(answer->answer);
    if (asked->counts) {
      ici_.peer(id.first).await_answers(-1);
    }
  } else if (const auto* ask = std::get_if<Ask>(&body)) {
    const RemoteIf& core = ici_.peer(ask->core);
    send(board_, links_.board_of(id.first),
         now_cycles() + links_.control_latency(ask->core, id.first), id,
         Tell{{.done = core.work_done(), .in_flight = core.work_in_flight()}});
  } else if (const auto* tell = std::get_if<Tell>(&body)) {
    const auto told = questions_.take(id.first, id.second);
    if (!told) {
      lose(id, "an answer came twice");
    }
    told->told(tell->work);
  } else if (!heard_ || !heard_(from_board, std::get<CutLinkDown>(body).news)) {
    lose(id, "no fault file has the link that goes down");
  }
  return false;
}

void Cut::lose(const Id& id, const char* why) const {
  throw PodLost("message " + std::to_string(id.second) + " of core " + std::to_string(id.first) +
                " to board " + std::to_string(board_) + ": " + why);
}

std::vector<Cut::PassageAt>::iterator Cut::place_of(const Id& id, uint32_t board) {
  return std::ranges::lower_bound(passages_, std::tuple(id.first, board, id.second), {},
                                  &PassageAt::key);
}

Cut::Passage& Cut::enter(const Id& id, uint32_t board) {
  const auto place = place_of(id, board);
  if (place != passages_.end() && place->is(id, board)) {
    lose(id, "a transfer came twice");
  }
  PassageAt entry{.core = id.first, .board = board, .number = id.second, .passage = {}};
  if (spare_.empty()) {
    entry.passage = std::make_unique<Passage>();
  } else {
    entry.passage = std::move(spare_.back());
    spare_.pop_back();
    *entry.passage = Passage();
  }
  return *passages_.insert(place, std::move(entry))->passage;
}

Cut::Passage* Cut::find(const Id& id, uint32_t board) {
  const auto place = place_of(id, board);
  return place != passages_.end() && place->is(id, board) ? place->passage.get() : nullptr;
}

void Cut::leave(const Id& id, uint32_t board) {
  const auto place = place_of(id, board);
  spare_.push_back(std::move(place->passage));
  passages_.erase(place);
  activity_.end();
}

// The receiver's answer decides whether the bytes are sent at all, as in one board.
void Cut::begin(const Id& id, const Open& open) {
  using Status = RemoteAnswer::Status;
  const uint32_t from = open.write.from_core;
  const uint32_t to = open.write.to_core;
  const spec::Links::Way way = links_.way(from, to);
  spec::Links::Section section;
  uint32_t sections = 0;
  links_.each_section(way, from, to, [&](const spec::Links::Section& each) {
    section = sections++ == open.section ? each : section;
  });
  Passage& passage = enter(id, section.board);
  passage.id = id;
  passage.open = open;
  passage.section = section;
  passage.lands = open.section + 1 == sections;
  passage.missing = sections;
  activity_.begin();
  passage.set_bytes(open.bytes);
  passage.set_listener(this);
  links_.add_section(way, to, section, passage);
  bool flows = true;
  if (passage.lands && open.copy) {
    passage.add(hbm_[to]);
  } else if (passage.lands) {
    RemotePlace place;  // its memory is not shown to other boards
    const RemoteAnswer said = ici_.peer(to).remote_open(open.write, &place);
    passage.taken = said.status == Status::kOk;
    flows = passage.taken || said.status == Status::kDropped || said.status == Status::kStray;
    if (said.bandwidth >= 0) {
      passage.add(said.bandwidth);
    }
    answer(id, to, said);
  }
  if (flows) {
    ici_.enter_links(from, to, section.first, section.count,
                     [this, id, board = section.board](uint64_t cycles) {
                       if (Passage* const found = find(id, board)) {
                         found->extra = cycles;
                       }
                     });
    fluid_.start(passage);
  } else {
    passage.refused = true;
    --passage.missing;
  }
}

void Cut::answer(const Id& id, uint32_t core, const RemoteAnswer& answer) {
  send(links_.board_of(core), links_.board_of(id.first),
       now_cycles() + links_.control_latency(core, id.first), id, Answer{answer});
}

// The last byte is through this board: the rest of the way is latency. The flow is still in use, so
// the passage ends by a message to this board.
void Cut::flow_changed(const Flow& flow, bool ended) {
  const auto& passage = static_cast<const Passage&>(flow);
  const uint64_t rest = passage.section.rest + passage.open.fixed;
  const uint32_t board = passage.section.board;
  if (ended) {
    send(board, board, now_cycles() + (passage.lands ? rest + passage.extra : 0), passage.id,
         Passed{board});
  }
}

void Cut::passed(const Id& id, uint32_t board) {
  Passage* const passage = find(id, board);
  if (passage == nullptr || passage->missing == 0) {
    lose(id, "a transfer has passed that has not come");
  }
  const RemoteWrite& write = passage->open.write;
  if (!passage->lands) {
    const uint32_t last = links_.board_of(write.to_core);
    send(board, last, now_cycles() + passage->section.rest + passage->open.fixed + passage->extra,
         id, Passed{last});
    leave(id, board);
  } else if (--passage->missing == 0) {
    land_due({write.from_core, write.to_core, passage->open.copy});
  }
}

// All bytes of the delivery are there.
bool Cut::has_come(const CutDelivery& delivery) {
  if (!delivery.flow) {
    return true;
  }
  const Id id = {delivery.from_core, *delivery.flow};
  const Passage* const passage = find(id, links_.board_of(delivery.to_core));
  if (passage == nullptr) {
    lose(id, "a delivery has no transfer");
  }
  return passage->missing == 0;
}

// True: later.
bool Cut::deliver_now_or_later(CutDelivery& delivery, uint64_t number, CutInbox::Slot slot) {
  const Line line = {delivery.from_core, delivery.to_core, static_cast<bool>(delivery.copy)};
  const bool others = !waiting_.empty() && waiting_.contains(line);
  if (!others && has_come(delivery)) {
    land(delivery, number);
    return false;
  }
  activity_.begin();
  waiting_[line].push_back({slot, number});
  return true;
}

void Cut::land_due(const Line& line) {
  const auto found = waiting_.find(line);
  if (found == waiting_.end()) {
    return;  // the delivery comes later than its bytes
  }
  std::deque<Waiting>& waiting = found->second;
  while (!waiting.empty()) {
    const auto [slot, number] = waiting.front();
    auto& delivery = std::get<CutDelivery>(inbox_.body(slot));
    if (!has_come(delivery)) {
      return;
    }
    land(delivery, number);
    inbox_.drop(slot);
    waiting.pop_front();
    activity_.end();
  }
  waiting_.erase(found);
}

void Cut::land(CutDelivery& delivery, uint64_t number) {
  using Status = RemoteAnswer::Status;
  RemoteIf& core = ici_.peer(delivery.to_core);
  bool refused = false;
  if (delivery.flow) {
    const Id flow = {delivery.from_core, *delivery.flow};
    const uint32_t board = links_.board_of(delivery.to_core);
    const Passage& passage = *find(flow, board);
    const bool taken = passage.taken;
    refused = passage.refused;
    leave(flow, board);
    if (taken) {
      delivery.write.at = now_cycles();
      core.remote_landed(delivery.write, delivery.data);
    }
  }
  if (delivery.copy) {
    delivery.copy();
  }
  RemoteAnswer said{.status = Status::kOk};
  for (RemoteSignal& signal : delivery.signals) {
    if (refused) {
      break;  // as in one board, where such a transfer does not begin
    }
    signal.at = now_cycles();
    const RemoteAnswer one = core.remote_signal(signal);
    if (one.status == Status::kEnded) {
      said = one;
    }
  }
  if (!delivery.signals.empty() || delivery.copy) {
    answer({delivery.from_core, number}, delivery.to_core, said);
  }
}

}  // namespace tpu::model
