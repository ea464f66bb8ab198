// Control flow and dynamic slices on the untimed machine: VMEM starts as NaN, queues run in random
// order, every conflict must be ordered, every semaphore zero at the end. With much VMEM (carried
// values stay there) and with little (they live in HBM).
#include "../../unit/compiler/control_builder.hpp"
#include "../run_compiled.hpp"
#include "asm/assembler.hpp"
#include "asm/disassembler.hpp"

namespace tpu::compiler::test {
namespace {

using Builder = RegionBuilder;

// Compiles and compares on boards of both sizes.
void check_both(const std::function<void(GraphBuilder&)>& make, int64_t cores = 1) {
  for (const char* vmem : {"core.vmem_kib=16384", "core.vmem_kib=64", "core.vmem_kib=16"}) {
    if (cores > 1 && vmem == std::string("core.vmem_kib=16")) {
      continue;  // an exchange needs more
    }
    SCOPED_TRACE(vmem);
    GraphBuilder b(cores);
    make(b);
    RunOptions o;
    o.overrides = {vmem};
    check_graph(b.module(), o);
  }
}

TEST(Control, CarriedValuesChangePlaces) {
  for (const int64_t n : {3, 2000}) {
    check_both([&](GraphBuilder& b) {
      Value *x = b.arg(f32({n})), *y = b.arg(f32({n})), *z = b.arg(f32({n}));
      Builder r(b.region());
      b.done(r.times(5, {x, y, z}, [&](Builder& in, const Values& a) {
        return Values{a[2], a[3], in.add(a[1], a[2])};
      }));
    });
  }
}

TEST(Control, OneInitialValueTwiceAndOldValueReadLate) {
  check_both([](GraphBuilder& b) {
    Value* x = b.arg(f32({500}));
    Builder r(b.region());
    b.done(r.times(3, {x, x}, [](Builder& in, const Values& a) {
      Value* next = in.add(a[1], a[2]);
      Value* back = in.op(Kind::kReverse, {a[1]}, f32({500}), DimsAttrs{{0}});
      return Values{in.mul(back, next), next};
    }));
  });
}

TEST(Control, ALoopThatNeverRunsIsItsOperands) {
  check_both([](GraphBuilder& b) {
    Value* x = b.arg(f32({7}));
    Builder r(b.region());
    b.done(
        r.times(0, {x}, [](Builder& in, const Values& a) { return Values{in.add(a[1], a[1])}; }));
  });
}

// Data-dependent: n comes as an argument (0 .. 9).
TEST(Control, TripCountFromData) {
  check_both([](GraphBuilder& b) {
    Value *x = b.arg(f32({300})), *n = b.arg(i32({}));
    Builder r(b.region());
    Value* zero = r.number(i32({}), 0);
    const Values out = r.loop(
        {zero, n, x},
        [](Builder& in, const Values& a) {
          return Values{in.compare(CompareDirection::kLt, a[0], a[1])};
        },
        [](Builder& in, const Values& a) {
          Value* next = in.add(a[0], in.number(i32({}), 1));
          return Values{next, a[1], in.add(a[2], in.number(f32({300}), 0.5))};
        });
    b.done({out[0], out[2]});
  });
}

TEST(Control, NestedLoopsUpdateInPlaceAndComputeWithTheirCounters) {
  check_both([](GraphBuilder& b) {
    Value *x = b.arg(f32({6, 40})), *w = b.arg(f32({40}));
    Builder r(b.region());
    b.done(r.times(6, {x}, [&](Builder& outer, const Values& a) {
      return outer.times(3, {a[1]}, [&](Builder& in, const Values& c) {
        Value* zero = in.number(i32({}), 0);
        Value* row = in.slice(c[1], {a[0], zero}, {1, 40});
        Value* number = in.op(Kind::kConvert, {in.add(a[0], c[0])}, f32({}));
        Value* changed = in.add(in.mul(row, in.spread(number, {1, 40})),
                                in.op(Kind::kReshape, {w}, f32({1, 40})));
        Value* at = in.op(Kind::kSubtract, {in.number(i32({}), 5), a[0]}, i32({}));
        return Values{in.update(c[1], changed, {at, zero})};
      });
    }));
  });
}

// An update whose operand's place is then wanted by the carried value that follows.
TEST(Control, AnUpdatedValueIsNotOverwrittenByItsSuccessor) {
  check_both([](GraphBuilder& b) {
    Value* x = b.arg(f32({64}));
    Builder r(b.region());
    b.done(r.times(4, {x}, [](Builder& in, const Values& a) {
      Value* part = in.number(f32({3}), 2);
      Value* changed = in.update(a[1], part, {a[0]});
      return Values{in.add(in.op(Kind::kReverse, {changed}, f32({64}), DimsAttrs{{0}}), changed)};
    }));
  });
}

// A condition may compute with carried values, but not in their place.
TEST(Control, AConditionChangesNothing) {
  check_both([](GraphBuilder& b) {
    Value* x = b.arg(f32({64}));
    Builder r(b.region());
    b.done(r.loop(
        {x, r.number(f32({}), 0)},
        [](Builder& in, const Values& a) {
          Value* zero = in.number(i32({}), 0);
          Value* changed = in.update(a[0], in.op(Kind::kReshape, {a[1]}, f32({1})), {zero});
          Value* first = in.slice(changed, {zero}, {1});
          return Values{in.compare(CompareDirection::kLt, in.op(Kind::kReshape, {first}, f32({})),
                                   in.number(f32({}), 4))};
        },
        [](Builder& in, const Values& a) {
          return Values{in.add(a[0], a[0]), in.add(a[1], in.number(f32({}), 1))};
        }));
  });
}

TEST(Control, BranchesBothWaysWithValuesFromOutside) {
  for (const double which : {0.0, 1.0}) {
    check_both([&](GraphBuilder& b) {
      Value *x = b.arg(f32({700})), *y = b.arg(f32({700})), *k = b.arg(i32({}));
      Builder r(b.region());
      // Not a constant, so that the branch stays.
      Value* zero = r.op(Kind::kSubtract, {k, k}, i32({}));
      Value* p = r.compare(CompareDirection::kEq, zero, r.number(i32({}), which));
      Value* sum = r.add(x, y);
      const Values out = r.choose(
          Kind::kIf, p, {f32({700}), f32({700})},
          {[&](Builder& in, const Values&) {
             return Values{in.mul(sum, x), y};
           },
           [&](Builder& in, const Values&) {
             const Values l = in.times(
                 2, {sum}, [&](Builder& d, const Values& a) { return Values{d.add(a[1], x)}; });
             return Values{l[0], in.number(f32({700}), 3)};
           }});
      b.done({out[0], out[1], r.add(sum, out[0])});
    });
  }
}

TEST(Control, CaseClampsItsIndexToTheLastBranch) {
  for (const double k : {-3.0, 0.0, 1.0, 2.0, 3.0, 2e9}) {
    check_both([&](GraphBuilder& b) {
      Value *x = b.arg(f32({9})), *n = b.arg(i32({}));
      Builder r(b.region());
      Value* at = r.add(r.op(Kind::kSubtract, {n, n}, i32({})), r.number(i32({}), k));
      std::vector<Builder::Body> arms;
      for (int i = 0; i < 3; ++i) {
        arms.push_back([&, i](Builder& in, const Values&) {
          return Values{in.mul(x, in.number(f32({9}), i + 2))};
        });
      }
      b.done(r.choose(Kind::kCase, at, {f32({9})}, arms));
    });
  }
}

Value* all_reduce(Builder& r, Value* x) {
  CollectiveAttrs a;
  a.groups = {{0, 1, 2, 3, 4, 5, 6, 7}};
  Value* v = r.op(Kind::kAllReduce, {x}, x->type, a);
  Region* body = v->def->add_region();
  const Type scalar{x->type.elem, {}};
  Value *p = body->add_arg(scalar), *q = body->add_arg(scalar);
  Value* s = body->append(Kind::kAdd, {p, q}, {scalar}, NoAttrs{}, unknown_loc())->result();
  body->append(Kind::kReturn, {s}, {}, NoAttrs{}, unknown_loc());
  return v;
}

TEST(Control, CollectivesInLoopsThatAllCoresRunTogether) {
  check_both(
      [](GraphBuilder& b) {
        Value* x = b.arg(f32({600}));
        Builder r(b.region());
        const Values counted = r.times(3, {x}, [](Builder& in, const Values& a) {
          return Values{in.mul(all_reduce(in, a[1]), in.number(f32({600}), 0.125))};
        });
        // The condition comes from a sum over all cores.
        b.done(r.loop(
            {counted[0], r.number(f32({}), 0)},
            [](Builder& in, const Values& a) {
              return Values{
                  in.compare(CompareDirection::kLt, all_reduce(in, a[1]), in.number(f32({}), 20))};
            },
            [](Builder& in, const Values& a) {
              return Values{in.mul(all_reduce(in, a[0]), in.number(f32({600}), 0.125)),
                            in.add(a[1], in.number(f32({}), 1))};
            }));
      },
      8);
}

// Sums of whole pieces are streamed: one is on its way where the loop begins, one runs in every
// iteration, one in a branch, and their rests are packed.
TEST(Control, StreamedSumsEndAtBoundaries) {
  const auto make = [](int64_t n) {
    return [n](GraphBuilder& b) {
      Value *x = b.arg(f32({n})), *y = b.arg(f32({n}));
      Builder r(b.region());
      Value* before = all_reduce(r, y);
      Value* eighth = r.number(f32({n}), 0.125);
      const Values out = r.times(3, {x}, [&](Builder& in, const Values& a) {
        Value* half = in.mul(a[1], eighth);
        return Values{in.add(all_reduce(in, half), in.mul(a[1], eighth))};
      });
      Value* even = r.compare(CompareDirection::kGt, r.number(i32({}), 3), r.number(i32({}), 2));
      const Values chosen = r.choose(Kind::kIf, even, {f32({n})},
                                     {[&](Builder& in, const Values&) {
                                        return Values{all_reduce(in, in.mul(out[0], eighth))};
                                      },
                                      [&](Builder&, const Values&) { return Values{x}; }});
      b.done({before, chosen[0], all_reduce(r, r.mul(chosen[0], before))});
    };
  };
  check_both(make(3000), 8);  // two pieces and a rest with little VMEM
  GraphBuilder large(8);
  make(140000)(large);  // one piece and a rest with much
  check_graph(large.module(), {});
}

TEST(Control, ACollectiveUnderAConditionOfOneCoreIsRefused) {
  GraphBuilder b(8);
  Value* x = b.arg(f32({4}));
  Builder r(b.region());
  Value* id = r.op(Kind::kPartitionId, {}, {Elem::kU32, {}});
  Value* p = r.compare(CompareDirection::kEq, id, r.number({Elem::kU32, {}}, 0));
  const Values out =
      r.choose(Kind::kIf, p, {f32({4})},
               {[&](Builder& in, const Values&) { return Values{all_reduce(in, x)}; },
                [&](Builder&, const Values&) { return Values{x}; }});
  try {
    generate(b.done(out), spec::load_board("v3_8", {}));
    FAIL() << "compiled";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("same on all cores"), std::string::npos) << e.what();
  }
}

// Cores may take different branches and iterate differently where nothing is exchanged.
TEST(Control, CoresGoDifferentWays) {
  check_both(
      [](GraphBuilder& b) {
        Value* x = b.arg(f32({50}));
        Builder r(b.region());
        Value* id = r.op(Kind::kConvert, {r.op(Kind::kPartitionId, {}, {Elem::kU32, {}})}, i32({}));
        const Values out = r.loop(
            {id, x},
            [](Builder& in, const Values& a) {
              return Values{in.compare(CompareDirection::kGt, a[0], in.number(i32({}), 2))};
            },
            [](Builder& in, const Values& a) {
              return Values{in.op(Kind::kSubtract, {a[0], in.number(i32({}), 1)}, i32({})),
                            in.mul(a[1], a[1])};
            });
        Value* row = r.slice(out[1], {id}, {1});
        Value* sum = all_reduce(r, row);
        b.done({out[1], sum});
      },
      8);
}

TEST(Control, DisassemblyAssemblesToTheSameImage) {
  GraphBuilder b;
  Value *x = b.arg(f32({12, 30})), *n = b.arg(i32({}));
  Builder r(b.region());
  const Values out = r.times(12, {x}, [&](Builder& in, const Values& a) {
    Value* zero = in.number(i32({}), 0);
    Value* row = in.slice(a[1], {n, zero}, {1, 30});
    Value* p = in.compare(CompareDirection::kLt, n, a[0]);
    const Values c =
        in.choose(Kind::kIf, p, {f32({1, 30})},
                  {[&](Builder& t, const Values&) { return Values{t.add(row, row)}; },
                   [&](Builder& t, const Values&) { return Values{t.mul(row, row)}; }});
    return Values{in.update(a[1], c[0], {a[0], zero})};
  });
  const spec::BoardParams board = spec::load_board("v3_8", {});
  std::string dump;
  CompileOptions options;
  options.dump_after = {"listing"};
  options.dump = [&](const std::string&, const std::string& text) { dump += text; };
  const exe::ExecutableT e = generate(b.done(out), board, options);
  const exe::ExecutableT again = assemble(disassemble(e), "again.s", board);
  EXPECT_EQ(e.image, again.image);
  EXPECT_NE(dump.find("loop 12 times"), std::string::npos) << dump;
  EXPECT_NE(dump.find("choice"), std::string::npos);
  EXPECT_NE(dump.find("bne"), std::string::npos);
}

std::string listing_of(const Module& module) {
  std::string dump;
  CompileOptions options;
  options.dump_after = {"listing"};
  options.dump = [&](const std::string&, const std::string& text) { dump += text; };
  generate(module, spec::load_board("v3_8", {}), options);
  return dump;
}

int count_of(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++n;
  }
  return n;
}

TEST(Control, AnIndexOfSeveralSlicesIsFetchedOnce) {
  GraphBuilder b;
  Value *x = b.arg(f32({12, 30})), *y = b.arg(f32({12, 30})), *n = b.arg(i32({}));
  Builder r(b.region());
  Value* zero = r.number(i32({}), 0);
  Value* sum = r.add(r.slice(x, {n, zero}, {1, 30}), r.slice(y, {n, zero}, {1, 30}));
  EXPECT_EQ(count_of(listing_of(b.done({r.update(x, sum, {n, zero})})), "Wsmem["), 1);
}

// In each iteration the index is another number; an arm that does not run has fetched nothing.
TEST(Control, IndicesAreFetchedAgainInEachPiece) {
  check_both([](GraphBuilder& b) {
    Value *x = b.arg(f32({12, 300})), *first = b.arg(i32({})), *n = b.arg(i32({}));
    Builder r(b.region());
    Value* zero = r.number(i32({}), 0);
    const Values out = r.times(5, {x, first}, [&](Builder& in, const Values& a) {
      Value* row = in.slice(a[1], {a[2], zero}, {1, 300});
      Value* p = in.compare(CompareDirection::kLt, n, a[0]);
      const Values c =
          in.choose(Kind::kIf, p, {f32({1, 300})},
                    {[&](Builder& t, const Values&) {
                       return Values{t.add(row, t.slice(a[1], {n, zero}, {1, 300}))};
                     },
                     [&](Builder& t, const Values&) { return Values{t.mul(row, row)}; }});
      Value* both = in.add(c[0], in.slice(a[1], {n, zero}, {1, 300}));
      return Values{in.update(a[1], both, {a[2], zero}), in.add(a[2], in.number(i32({}), 1))};
    });
    b.done({out[1]});
  });
}

TEST(Control, EstimateCountsTheIterations) {
  const auto cycles = [](int64_t trips) {
    GraphBuilder b;
    Value* x = b.arg(f32({3000}));
    Builder r(b.region());
    b.done(r.times(trips, {x},
                   [](Builder& in, const Values& a) { return Values{in.mul(a[1], a[1])}; }));
    return generate(b.module(), spec::load_board("v3_8", {})).estimated_cycles;
  };
  const uint64_t ten = cycles(10), twenty = cycles(20), forty = cycles(40);
  EXPECT_GT(twenty, ten);
  EXPECT_EQ(forty - twenty, 2 * (twenty - ten));
}

}  // namespace
}  // namespace tpu::compiler::test
