// What a board keeps of the traffic with other boards: messages that have not arrived yet, and what
// its cores wait to be told. There are tens of them at a time, millions in a step, and a large pod
// has hundreds of boards: they lie side by side, and their memory is used again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ici/cut_message.hpp"

namespace tpu::model {

// Messages in the order of their keys.
class CutInbox {
 public:
  using Slot = uint32_t;  // where a body lies

  bool empty() const { return heap_.empty(); }
  uint64_t first_at() const { return heap_.front().at; }
  void put(const CutKey& key, CutBody&& body);

  struct Message {
    CutKey key;
    Slot slot = 0;
    bool twice = false;  // there is another one with this key
  };
  // The first one. Its body stays until it is dropped.
  Message take();
  CutBody& body(Slot slot) { return *bodies_[slot]; }
  void drop(Slot slot);

 private:
  struct Entry {
    uint64_t at;
    uint64_t number;
    uint32_t board;
    uint32_t core;
    uint32_t kind;
    Slot slot;
  };
  static bool is_later(const Entry& one, const Entry& other);

  std::vector<Entry> heap_;  // the earliest on top
  std::vector<std::unique_ptr<CutBody>> bodies_;
  std::vector<Slot> free_;  // of bodies_
};

// What the cores of a board have begun, numbered by core, and which answers they wait for. Most are
// told in the order of their numbers.
class CutQuestions {
 public:
  struct Question {
    CutIf::Answered answered;
    CutIf::Told told;
    bool counts = false;  // the core waits for the answer before it ends a program

    bool open() const { return answered || told; }
  };

  uint64_t begin(uint32_t core) { return of(core).next++; }
  // Of what it has begun last.
  void ask(uint32_t core, uint64_t number, Question question);
  // Null: nobody waits for it.
  const Question* find(uint32_t core, uint64_t number) const;
  std::optional<Question> take(uint32_t core, uint64_t number);

 private:
  struct Core {
    uint32_t core;
    uint64_t next = 0;
    uint64_t first = 0;              // number of the first of
    std::deque<Question> questions;  // not all of which are open; the first one is
  };
  Core& of(uint32_t core);

  std::vector<Core> cores_;  // of this board, a few
};

}  // namespace tpu::model
