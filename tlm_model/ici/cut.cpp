// Messages between boards, and the flows of what they carry.
#include "ici/cut.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "kernel/cycles.hpp"

namespace tpu::model {

Cut::Cut(sc_core::sc_module_name name, uint32_t board, const spec::Links& links, FluidShare& fluid,
         Activity& activity, IciIf& ici)
    : sc_module(name),
      board_(board),
      links_(links),
      fluid_(fluid),
      activity_(activity),
      ici_(ici),
      numbers_(links.cores()) {
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
  const uint64_t number = numbers_[from]++;
  const std::vector<spec::Links::Section> sections = links_.sections(from, open.write.to_core);
  for (size_t i = 0; i < sections.size(); ++i) {
    Open part = open;
    part.section = i;
    send(board_, sections[i].board, now_cycles() + sections[i].entry, {from, number}, part);
  }
  return number;
}

uint64_t Cut::open(const RemoteWrite& write, uint64_t bytes, uint64_t fixed, Answered answered) {
  const uint64_t number = open_flow({.write = write, .bytes = bytes, .fixed = fixed});
  asked_[{write.from_core, number}] = {std::move(answered), true};
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
  const Id id = {delivery.from_core, numbers_[delivery.from_core]++};
  if (!delivery.signals.empty() || delivery.copy) {
    const bool counts = !delivery.signals.empty();
    asked_[id] = {std::move(answered), counts};
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
  const Id id = {from_core, numbers_[from_core]++};
  told_[id] = std::move(told);
  send(board_, links_.board_of(to_core), now_cycles() + links_.control_latency(from_core, to_core),
       id, Ask{to_core});
}

void Cut::tell_link(uint32_t core, const LinkNews& news) {
  std::set<uint32_t> told = {board_};
  for (uint32_t to = 0; to < links_.cores(); ++to) {  // the first core of each board
    if (const uint32_t board = links_.board_of(to); told.insert(board).second) {
      send(board_, board, now_cycles() + links_.control_latency(core, to), {core, numbers_[core]++},
           CutLinkDown{news});
    }
  }
}

void Cut::send(uint32_t from_board, uint32_t to_board, uint64_t at, Id id, Body body) {
  const size_t kind = body.index();
  boards_[to_board]->take(
      {.at = at, .board = from_board, .core = id.first, .number = id.second, .kind = kind},
      std::move(body));
}

void Cut::take(const Key& key, Body body) {
  const Id id = {key.core, key.number};
  const bool answers = std::holds_alternative<Answer>(body);
  const bool tells = std::holds_alternative<Tell>(body);
  if ((answers && !asked_.contains(id)) || (tells && !told_.contains(id)) ||
      !inbox_.emplace(key, std::move(body)).second) {
    lose(id, "nothing here waits for a message");
  }
  activity_.begin();
  wake();
}

// Flows end by timed events of the same cycle, and what they send is to be in order with the rest,
// whichever process the kernel runs first.
void Cut::wake_method() { inbox_event_.notify(sc_core::SC_ZERO_TIME); }

void Cut::wake() {
  if (inbox_.empty()) {
    return;
  }
  const uint64_t wait = inbox_.begin()->first.at - now_cycles();
  if (wait == 0) {
    inbox_event_.notify(sc_core::SC_ZERO_TIME);
  } else {
    wake_event_.notify(from_cycles(wait));
  }
}

void Cut::inbox_method() {
  while (!inbox_.empty() && inbox_.begin()->first.at <= now_cycles()) {
    auto message = inbox_.extract(inbox_.begin());
    const Key& key = message.key();
    handle({key.core, key.number}, key.board, message.mapped());
    activity_.end();
  }
  wake();
}

void Cut::handle(const Id& id, uint32_t from_board, Body& body) {
  if (const auto* open = std::get_if<Open>(&body)) {
    begin(id, *open);
  } else if (const auto* passed = std::get_if<Passed>(&body)) {
    this->passed(id, links_.folded() ? passed->board : board_);
  } else if (auto* delivery = std::get_if<CutDelivery>(&body)) {
    activity_.begin();
    const Line line = {id.first, delivery->to_core, static_cast<bool>(delivery->copy)};
    waiting_[line].push_back({std::move(*delivery), id.second});
    land_due(line);
  } else if (const auto* answer = std::get_if<Answer>(&body)) {
    const auto asked = asked_.extract(id);
    if (asked.empty()) {
      lose(id, "an answer came twice");
    }
    asked.mapped().answered(answer->answer);
    if (asked.mapped().counts) {
      ici_.peer(id.first).await_answers(-1);
    }
  } else if (const auto* ask = std::get_if<Ask>(&body)) {
    const RemoteIf& core = ici_.peer(ask->core);
    send(board_, links_.board_of(id.first),
         now_cycles() + links_.control_latency(ask->core, id.first), id,
         Tell{{.done = core.work_done(), .in_flight = core.work_in_flight()}});
  } else if (const auto* tell = std::get_if<Tell>(&body)) {
    const auto told = told_.extract(id);
    if (told.empty()) {
      lose(id, "an answer came twice");
    }
    told.mapped()(tell->work);
  } else if (!heard_ || !heard_(from_board, std::get<CutLinkDown>(body).news)) {
    lose(id, "no fault file has the link that goes down");
  }
}

void Cut::lose(const Id& id, const char* why) const {
  throw PodLost("message " + std::to_string(id.second) + " of core " + std::to_string(id.first) +
                " to board " + std::to_string(board_) + ": " + why);
}

// The receiver's answer decides whether the bytes are sent at all, as in one board.
void Cut::begin(const Id& id, const Open& open) {
  using Status = RemoteAnswer::Status;
  const uint32_t from = open.write.from_core;
  const uint32_t to = open.write.to_core;
  const std::vector<spec::Links::Section> sections = links_.sections(from, to);
  const auto [at, is_new] = passages_.try_emplace({id, sections[open.section].board});
  if (!is_new) {
    lose(id, "a transfer came twice");
  }
  Passage& passage = at->second;
  passage.id = id;
  passage.open = open;
  passage.section = sections[open.section];
  passage.lands = open.section + 1 == sections.size();
  passage.missing = static_cast<uint32_t>(sections.size());
  activity_.begin();
  passage.set_bytes(open.bytes);
  passage.set_listener(this);
  links_.add_section(from, to, passage.section, passage);
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
    ici_.enter_links(from, to, passage.section.first, passage.section.count,
                     [this, key = at->first](uint64_t cycles) {
                       if (const auto found = passages_.find(key); found != passages_.end()) {
                         found->second.extra = cycles;
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
  const auto found = passages_.find({id, board});
  if (found == passages_.end() || found->second.missing == 0) {
    lose(id, "a transfer has passed that has not come");
  }
  Passage& passage = found->second;
  const RemoteWrite& write = passage.open.write;
  if (!passage.lands) {
    const uint32_t last = links_.board_of(write.to_core);
    send(board, last, now_cycles() + passage.section.rest + passage.open.fixed + passage.extra, id,
         Passed{last});
    passages_.erase({id, board});
    activity_.end();
  } else if (--passage.missing == 0) {
    land_due({write.from_core, write.to_core, passage.open.copy});
  }
}

void Cut::land_due(const Line& line) {
  const auto found = waiting_.find(line);
  if (found == waiting_.end()) {
    return;  // the delivery comes later than its bytes
  }
  std::deque<Waiting>& waiting = found->second;
  while (!waiting.empty()) {
    const std::optional<uint64_t> flow = waiting.front().delivery.flow;
    const PassageId passage = {{line.from_core, flow.value_or(0)}, links_.board_of(line.to_core)};
    const auto bytes = passages_.find(passage);
    if (flow && bytes == passages_.end()) {
      lose(passage.first, "a delivery has no transfer");
    }
    if (flow && bytes->second.missing != 0) {
      return;
    }
    land(waiting.front().delivery, waiting.front().number);
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
    const auto passage = passages_.extract(
        {{delivery.from_core, *delivery.flow}, links_.board_of(delivery.to_core)});
    activity_.end();
    refused = passage.mapped().refused;
    if (passage.mapped().taken) {
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
