"""Each check of the source tree notices the faults that it is for: run over small trees that have one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import unittest

from tree import Tree


class OptionNames(Tree):
    SCRIPT = "tests/lint/option_names_test.py"

    def setUp(self) -> None:
        super().setUp()
        self.write("spec/sim/options.toml",
                   '[[option]]\nname = "waves"\nvariable = "WAVES"\nmembers = ["sim.waves_path"]\n')

    def say(self, literal: str, path: str = "tlm_model/waves/waves.cpp") -> None:
        self.write(path, f'const char* text = "{literal}";  // --waves\n')

    def test_fields_and_commands_pass(self) -> None:
        self.say("SimOptions::waves_path w: OpenOptions::factory, --other; tpuboard run p --waves w")
        self.passes(self.SCRIPT)

    def test_names_of_another_place_are_refused(self) -> None:
        for name in ("--waves", "TPUBOARD_WAVES"):
            self.say(f"add {name} FILE")
            self.fails(f"waves\\.cpp: .* names {name}; name the field", self.SCRIPT)
        self.say("add --waves FILE", "cli/options.cpp")
        self.write("tlm_model/waves/waves.cpp", "")
        self.passes(self.SCRIPT)

    def test_fields_that_do_not_exist_are_refused(self) -> None:
        self.say("set SimOptions::wave_path")
        self.fails("has no SimOptions::wave_path", self.SCRIPT)


class Extras(Tree):
    SCRIPT = "tests/lint/extras_test.py"
    PAIRS = (("torch", "2_9", "2.9.1", "2.9.0"), ("torch-2-5", "2_5", "2.5.1", "2.5.1"))

    def extras(self, *left_out: str) -> None:
        lines = []
        for extra, version, torch, torch_xla in self.PAIRS:
            pins = [f"torch=={torch}", f"torch_xla=={torch_xla}"]
            self.write(f"tests/requirements_torch_{version}.txt", "\n".join(pins) + "\n")
            lines.append(f"{extra} = {json.dumps([pin for pin in pins if pin not in left_out])}")
        self.write("pyproject.toml", "[project.optional-dependencies]\n" + "\n".join(lines) + "\n")

    def test_the_pairs_of_the_tests_pass(self) -> None:
        self.extras()
        self.passes(self.SCRIPT)

    def test_an_extra_without_torch_is_refused(self) -> None:
        self.extras("torch==2.9.1")
        self.fails("the extra torch has .*torch==2\\.9\\.1.*torch has to be the same", self.SCRIPT)


class KindSwitches(Tree):
    SCRIPT = "tests/lint/kind_switches_test.py"

    def setUp(self) -> None:
        super().setUp()
        self.write("compiler/ir/op_kinds.hpp", '#define TPU_A_KINDS(X) \\\n  X(kAdd, "add") \\\n  X(kSort, "sort")\n')

    def switch(self, label: str, default: str) -> None:
        self.write("compiler/passes/fold.cpp",
                   f"bool f(Kind kind) {{\n  switch (kind) {{\n    {label}\n      return true;\n"
                   f"    {default}\n  }}\n}}\n")

    def test_a_silent_default_is_refused(self) -> None:
        for label in ("case Kind::kAdd:", "TPU_CASES(A)"):
            self.switch(label, "default:\n      return false;")
            self.fails("fold\\.cpp:5: this default may ignore a new kind", self.SCRIPT)

    def test_groups_errors_and_reasons_pass(self) -> None:
        for default in ("TPU_CASES(B)\n      return false;", 'default:\n      throw Error("internal");',
                        "default:  // has no rule\n      return false;"):
            self.switch("case Kind::kAdd:", default)
            self.passes(self.SCRIPT)

    def test_switches_over_other_enumerations_pass(self) -> None:
        self.switch("case Kind::kLoop:", "default:\n      return false;")
        self.passes(self.SCRIPT)


class ArgumentOrder(Tree):
    SCRIPT = "tests/lint/argument_order_test.py"

    def setUp(self) -> None:
        super().setUp()
        self.copy("compiler/passes/rewriter.hpp", "compiler/legalize/builder.hpp")
        self.write("compiler/legalize/math.hpp",
                   "struct Math {\n  Value* scaled(Value* x) { return b_.mul(x, two_); }\n"
                   "  int64_t size() const { return 2; }\n  Builder b_;\n};\n")

    def statement(self, text: str, folder: str = "legalize") -> None:
        self.write(f"compiler/{folder}/rule.cpp",
                   f"Value* f(Builder& b, Math& m, Value* x, Value* y) {{\n  {text}\n}}\n")

    def test_two_arguments_that_make_ops_are_refused(self) -> None:
        for text in ("return b.add(b.mul(x, x), b.mul(y, y));", "return b.add(m.scaled(x), m.scaled(y));",
                     "return b.select(x, b.add(x,\n y), m.scaled(y));", "return g(m.scaled(x), {y, m.scaled(y)});",
                     "const auto less = [&](Value* v) { return m.scaled(v); };  return b.add(less(x), less(y));"):
            self.statement(text)
            self.fails(r"rule\.cpp:2: two arguments of this call make ops", self.SCRIPT)

    def test_named_values_braces_and_other_calls_pass(self) -> None:
        for text in ("Value *yy = b.mul(y, y), *xx = b.mul(x, x);\n  return b.add(xx, yy);",
                     "return b.concatenate({b.mul(x, x), b.mul(y, y)}, 0);", "return b.slice(x, m.size(), m.size());",
                     "return b.add(b.mul(x, x), y);  // b.add(b.mul(x, x), b.mul(y, y))",
                     "return loop([&] { return b.mul(x, x); }, [&] { return b.mul(y, y); });"):
            self.statement(text)
            self.passes(self.SCRIPT)

    def test_vector_instructions(self) -> None:
        self.statement("return make(kAnd, make(kShr, x, y), imm(1));", "vpu")
        self.fails(r"compiler/vpu/rule\.cpp:2: two arguments", self.SCRIPT)


class Layering(Tree):
    SCRIPT = "tests/lint/layering_test.py"

    def setUp(self) -> None:
        super().setUp()
        for header in ("spec/arith/bf16.hpp", "tlm_model/core/core.hpp", "tlm_model/hart/hart.hpp",
                       "compiler/ir/graph.hpp", "compiler/emit/emit.hpp"):
            self.write(header, "#pragma once\n")

    def include(self, source: str, header: str) -> None:
        self.write(source, f'#include "{header}"\n')

    def test_allowed_edges_pass(self) -> None:
        self.include("compiler/emit/emit.cpp", "ir/graph.hpp")
        self.include("tlm_model/core/core.cpp", "arith/bf16.hpp")
        self.passes(self.SCRIPT)

    def test_an_edge_between_top_folders(self) -> None:
        self.include("compiler/ir/graph.cpp", "core/core.hpp")
        self.fails(r"compiler/ir/graph\.cpp: may not include core/core\.hpp of tlm_model/", self.SCRIPT)

    def test_one_folder_of_the_model(self) -> None:
        self.write("tlm_model/replay/mxu_replay.hpp", "#pragma once\n")
        self.include("cli/command_replay.cpp", "replay/mxu_replay.hpp")
        self.passes(self.SCRIPT)
        self.include("cli/command_run.cpp", "core/core.hpp")
        self.fails(r"command_run\.cpp: may not include core/core\.hpp of tlm_model/", self.SCRIPT)

    def test_one_folder_and_no_more(self) -> None:
        self.write("host_driver/figures/measure.hpp", "#pragma once\n")
        self.write("cli/options.hpp", "#pragma once\n")
        self.include("training/loop/dataset.cpp", "figures/measure.hpp")
        self.passes(self.SCRIPT)
        self.include("training/loop/trainer.cpp", "cli/options.hpp")
        self.fails(r"trainer\.cpp: may not include cli/options\.hpp of cli/", self.SCRIPT)

    def test_nothing_inside_the_driver(self) -> None:
        self.write("host_driver/src/rings/ring.hpp", "#pragma once\n")
        for source in ("training/loop/trainer.cpp", "client/process_board.cpp", "cli/app.cpp"):
            self.include(source, "src/rings/ring.hpp")
            self.fails(f"{source}: may not include src/rings/ring.hpp of host_driver/", self.SCRIPT)
            self.write(source, "")

    def test_a_circle_of_top_folders(self) -> None:
        self.write("base/file/file.hpp", "#pragma once\n")
        self.include("spec/arith/a.cpp", "file/file.hpp")
        self.passes(self.SCRIPT)
        self.include("base/file/file.cpp", "arith/bf16.hpp")
        self.fails(r"a circle of top folders: base/ includes spec\n.*: spec/ includes base", self.SCRIPT)

    def test_an_edge_between_blocks(self) -> None:
        self.include("tlm_model/hart/hart.cpp", "core/core.hpp")
        self.fails(r"tlm_model/hart/hart\.cpp: hart/ may not include", self.SCRIPT)

    def test_an_edge_between_rooms(self) -> None:
        self.include("compiler/ir/graph.cpp", "emit/emit.hpp")
        self.fails(r"compiler/ir/graph\.cpp: ir/ may not include", self.SCRIPT)

    def test_files_that_put_rooms_together(self) -> None:
        self.write("compiler/entry/compile.hpp", "#pragma once\n")
        self.include("compiler/cli/tpuc.cpp", "entry/compile.hpp")
        self.passes(self.SCRIPT)
        self.include("compiler/emit/emit.cpp", "entry/compile.hpp")
        self.fails(r"emit\.cpp: emit/ may not include compiler/entry/compile\.hpp", self.SCRIPT)

    def test_an_unknown_room(self) -> None:
        self.include("compiler/attic/old.cpp", "ir/graph.hpp")
        self.fails("compiler/attic is not known", self.SCRIPT)

    def test_an_edge_between_rooms_of_the_driver(self) -> None:
        self.write("host_driver/src/rings/ring.hpp", "#pragma once\n")
        self.write("host_driver/src/board/board_impl.hpp", "#pragma once\n")
        self.include("host_driver/src/operations/send.cpp", "src/rings/ring.hpp")
        self.include("host_driver/src/api.cpp", "src/board/board_impl.hpp")
        self.passes(self.SCRIPT)
        self.include("host_driver/src/rings/ring.cpp", "src/board/board_impl.hpp")
        self.fails(r"src/rings/ring\.cpp: rings/ may not include host_driver/src/board/board_impl\.hpp", self.SCRIPT)
        self.include("host_driver/src/rings/ring.cpp", "src/rings/ring.hpp")
        self.include("host_driver/src/attic/old.cpp", "src/rings/ring.hpp")
        self.fails("host_driver/src/attic is not known", self.SCRIPT)

    def test_a_header_without_its_folder(self) -> None:
        self.include("compiler/ir/graph.cpp", "graph.hpp")
        self.fails("includes graph.hpp without its folder", self.SCRIPT)

    def test_a_name_of_two_headers(self) -> None:
        self.write("compiler/passes/part.hpp", "#pragma once\n")
        self.write("compiler/vpu/passes/part.hpp", "#pragma once\n")
        self.include("compiler/ir/graph.cpp", "passes/part.hpp")
        self.fails("passes/part.hpp may be any of compiler/passes/part.hpp, compiler/vpu/passes/part.hpp", self.SCRIPT)


class Classes(Tree):
    SCRIPT = "tests/lint/classes_test.py"
    LIST = "tests/lint/classes.toml"
    folder = "compiler"

    def setUp(self) -> None:
        super().setUp()
        self.write(self.LIST, "")

    def declare(self, methods: int) -> None:
        declared = "".join(f"  virtual const std::vector<int>& m{i}(int a = f(1)) const {{ return {{}}; }}\n"
                           for i in range(methods))
        self.write(f"{self.folder}/big.hpp", f"""// class Not {{ void a(); }};
class Big final : public Base<int> {{
 public:
  explicit Big(int a) : a_(a) {{}}
  ~Big();
  Big(const Big&) = delete;
  Big& operator=(const Big&) = delete;
{declared} private:
  struct Inner {{ void own(); }};
  using Hook = std::function<void(int)>;
  std::function<void(int)> hook_;
  std::mutex mutex_;  // guards (all)
  int a_ = f(2);
}};
""")

    def define(self, files: int) -> None:
        for i in range(files):
            self.write(f"{self.folder}/big_{i}.cpp",
                       f"const int* Big::m{i}(int a) const {{\n  return Other::m();\n}}\n")

    def test_a_class_of_the_largest_size_passes(self) -> None:
        self.declare(40)
        self.define(3)
        self.passes(self.SCRIPT)

    def test_too_many_methods(self) -> None:
        self.declare(41)
        self.fails("compiler/Big: 41 methods, expected at most 40", self.SCRIPT)

    def test_the_driver_and_its_users_have_smaller_classes(self) -> None:
        for self.folder in ("host_driver", "client", "pjrt_plugin", "cli"):
            self.declare(25)
            self.passes(self.SCRIPT)
            self.declare(26)
            self.fails(f"{self.folder}/Big: 26 methods, expected at most 25", self.SCRIPT)
            self.declare(25)

    def test_too_many_files(self) -> None:
        self.declare(4)
        self.define(4)
        self.fails("compiler/Big: 4 files, expected at most 3", self.SCRIPT)

    def test_the_list_only_shrinks(self) -> None:
        self.declare(50)
        self.define(4)
        self.write(self.LIST, '["compiler/Big"]\nmethods = 50\nfiles = 4\n')
        self.passes(self.SCRIPT)
        self.declare(51)
        self.fails("compiler/Big: 51 methods, expected at most 50", self.SCRIPT)
        self.declare(49)
        self.fails("compiler/Big has 49 methods, the list says 50; lower it to 49", self.SCRIPT)
        self.declare(40)
        self.fails("compiler/Big has 40 methods, the list says 50; remove it", self.SCRIPT)
        self.write(self.LIST, '["compiler/Gone"]\nmethods = 50\n')
        self.fails("there is no class compiler/Gone; remove it", self.SCRIPT)


class JoinedNames(Tree):
    SCRIPT = "tests/lint/joined_names_test.py"

    def anonymous(self, name: str, text: str) -> None:
        self.write(f"spec/part/{name}.cpp", f"namespace {{\n{text}}}  // namespace\n")

    def test_functions_types_and_constants(self) -> None:
        self.anonymous("a", "int twice(const Box<int, 2>& box, int step = 1) {\n  return 2;\n}\nstruct Part {\n};\n")
        self.anonymous("b", "int twice(int step) {\n  return 3;\n}\nstruct Other {\n};\nconstexpr int kPart = 1;\n")
        self.passes(self.SCRIPT)
        self.anonymous("c", "int twice(const Box<int, 2>& place,\n          int by) { return 2; }\n")
        self.fails(r"spec/part: a\.cpp and c\.cpp both have twice\(const Box<int, 2>&, int\)", self.SCRIPT)
        self.anonymous("c", "class Part : public Whole {\n};\n")
        self.fails(r"a\.cpp and c\.cpp both have Part", self.SCRIPT)
        self.anonymous("c", "constexpr std::array<int, 2> kPart = {1, 2};\n")
        self.fails(r"b\.cpp and c\.cpp both have kPart", self.SCRIPT)
        self.write("spec/part/CMakeLists.txt", "set_source_files_properties(c.cpp PROPERTIES COMPILE_OPTIONS -O3)\n")
        self.passes(self.SCRIPT)


class Format(Tree):
    def test_layout_and_long_comments(self) -> None:
        script, program = "tests/lint/format_test.py", shutil.which("clang-format")
        assert program is not None
        self.copy(".clang-format")
        self.write("spec/a.cpp", "int a = 1;\n")
        self.passes(script, program)
        self.write("spec/a.cpp", "int  a=1;\n")
        self.fails(r"not formatted: .*spec/a\.cpp", script, program)
        self.write("spec/a.cpp", f"// {'long ' * 25}\nint a = 1;\n")
        self.fails(r"spec/a\.cpp:1: a comment of more than 100 columns", script, program)
        self.write("spec/a.cpp", 'void a() { fmt::print("a"); }\n')
        self.passes(script, program)
        self.write("training/a.cpp", 'void a() { fmt::print("a"); }\n')
        self.fails(r"training/a\.cpp:1: fmt::print; use spec::print", script, program)
        self.write("training/a.cpp", "std::mutex a;\n")
        self.passes(script, program)
        self.write("client/a.cpp", "std::mutex a;\n")
        self.fails(r"client/a\.cpp:1: a lock without annotations; use base::Mutex", script, program)


class Database(Tree):
    """Scripts that read compile_commands.json."""

    def database(self, *sources: str) -> None:
        entries = [{"directory": str(self.root), "file": str(self.root / name),
                    "command": f"g++ -std=c++20 -I{self.root}/spec -I{self.root}/base -c {self.root / name} -o a.o"}
                   for name in sources]
        self.write("build/ci/compile_commands.json", json.dumps(entries))

    def test_tidy_looks_at_changed_lines_only(self) -> None:
        script = "tests/lint/tidy.py"
        git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
        self.copy(".clang-tidy")
        self.write(".gitignore", "build/\n")
        self.write("build/ci/build.ninja",
                   "rule CUSTOM_COMMAND\n  command = touch $out\nbuild made.h: CUSTOM_COMMAND\n")
        self.write("spec/a.cpp", "int* a = 0;\n")
        self.database("spec/a.cpp")
        self.command(*git, "init", "--quiet")
        self.command("git", "add", ".")
        self.command(*git, "commit", "--quiet", "-m", "a")
        code, text = self.script(script, "--build", "build/ci")
        self.assertEqual((code, "skipped" in text), (77, True), text)
        self.write("spec/a.cpp", "int* a = 0;\nint b = 1;\n")
        self.command(*git, "commit", "--quiet", "-am", "b")
        self.passes(script, "--build", "build/ci")
        self.assertTrue((self.root / "build/ci/made.h").exists(), "headers are generated first")
        self.write("spec/a.cpp", "int* a = 0;\nint b = 1;\nint* c = 0;\n")
        self.fails(r"a\.cpp:3:.*modernize-use-nullptr", script, "--build", "build/ci")
        self.command(*git, "commit", "--quiet", "-am", "c")
        self.write("spec/b.cpp", "int d = 1;\n")
        self.command("git", "add", ".")
        self.command(*git, "commit", "--quiet", "-m", "d")
        self.fails(r"a\.cpp:3:", script, "--build", "build/ci")  # more than the last commit
        self.fails("0123456 is no commit of this clone", script, "--build", "build/ci", "--base", "0123456")
        self.fails(r"a\.cpp:1:.*modernize-use-nullptr", script, "--build", "build/ci", "--all")

    def test_an_access_without_its_lock_is_found(self) -> None:
        script = "tests/lint/tidy.py"
        self.copy(".clang-tidy", "base/sync/mutex.hpp", "base/sync/thread_annotations.hpp")
        self.write("build/ci/build.ninja",
                   "rule CUSTOM_COMMAND\n  command = touch $out\nbuild made.h: CUSTOM_COMMAND\n")
        self.database("spec/a.cpp")
        counter = """#include "../base/sync/mutex.hpp"
class Counter {
 public:
  void add() {
    const tpu::base::MutexLock lock(mutex_);
    step();
  }
  int get() { LOCK return count_; }

 private:
  void step() TPU_REQUIRES(mutex_) { ++count_; }
  tpu::base::Mutex mutex_;
  int count_ TPU_GUARDED_BY(mutex_) = 0;
};
int use(Counter& counter) { return counter.get(); }
"""
        self.write("spec/a.cpp", counter.replace("LOCK", "const tpu::base::MutexLock lock(mutex_);"))
        self.passes(script, "--build", "build/ci", "--locks")
        for mode in ("--locks", "--all"):
            self.write("spec/a.cpp", counter.replace("LOCK ", ""))
            self.fails("a.cpp:8:.*reading variable 'count_' requires holding mutex 'mutex_'", script, "--build",
                       "build/ci", mode)
        self.write("spec/a.cpp", counter.replace("LOCK ", "").replace("return count_", "step(); return 0"))
        self.fails("a.cpp:8:.*calling function 'step' requires holding mutex 'mutex_'", script, "--build", "build/ci",
                   "--locks")
        self.write("spec/a.cpp", counter.replace("LOCK", "mutex_.lock();"))
        self.fails("mutex 'mutex_' is still held at the end of function", script, "--build", "build/ci", "--locks")
        # Sources of a library are read as one: a finding in any of them, and in a header, is found.
        self.database("spec/b.cpp", "spec/a.cpp")
        self.write("spec/b.cpp", '#include "../base/sync/mutex.hpp"\ntpu::base::Mutex mutex;\n'
                                 "void wait() { const tpu::base::MutexLock lock(mutex); }\n")
        self.write("spec/a.cpp", counter.replace("LOCK", "const tpu::base::MutexLock lock(mutex_);"))
        self.passes(script, "--build", "build/ci", "--locks")
        self.write("spec/a.cpp", counter.replace("LOCK ", ""))
        self.fails("spec/a.cpp:8:.*reading variable 'count_' requires", script, "--build", "build/ci", "--locks")
        self.write("spec/a.hpp", counter.replace("LOCK ", ""))
        self.write("spec/a.cpp", '#include "a.hpp"\nvoid locked() { const tpu::base::MutexLock lock(mutex); }\n')
        self.fails("spec/a.hpp:8:.*reading variable 'count_' requires", script, "--build", "build/ci", "--locks")
        self.write("spec/a.cpp", "void MutexLock() { missing(); }\n")
        self.fails("use of undeclared identifier 'missing'", script, "--build", "build/ci", "--locks")

    def test_header_cost_names_what_does_not_compile_alone(self) -> None:
        script = "sim_scripts/header_cost.py"
        self.copy(script)
        self.write("spec/good.hpp", "#include <cstdint>\ninline std::int8_t good = 1;\n")
        self.write("spec/bad.hpp", "inline std::int8_t bad = 1;\n")
        self.write("spec/a.cpp", '#include "good.hpp"\n')
        self.database("spec/a.cpp")
        self.passes(script, "--build", "build/ci", "--check")
        self.write("spec/a.cpp", '#include "good.hpp"\n#include "bad.hpp"\n')
        self.fails(r"spec/bad\.hpp: does not compile alone", script, "--build", "build/ci", "--check")
        code, text = self.script(script, "--build", "build/ci")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r" +[0-9.]+ +1 +[0-9.]+  spec/good\.hpp")

    def test_compile_cost_names_targets_that_grew(self) -> None:
        script = "tests/lint/compile_cost_test.py"
        self.copy(script)
        cache = ("CMAKE_BUILD_TYPE:STRING=Release\nCMAKE_UNITY_BUILD:BOOL=ON\nCMAKE_UNITY_BUILD_BATCH_SIZE:STRING=64\n"
                 "CMAKE_CXX_COMPILER:FILEPATH=g++\n")
        self.write("build/ci/CMakeCache.txt", cache)
        self.write("build/ci/build.ninja",
                   "rule cxx\n  command = g++ -MD -MF $out.d -c $in -o $out\n  deps = gcc\n  depfile = $out.d\n"
                   "build CMakeFiles/thing.dir/a.cpp.o: cxx ../../spec/a.cpp\n")
        self.write("spec/a.cpp", "int main() {}\n")

        def build() -> None:
            subprocess.run(["ninja", "-C", self.root / "build/ci"], check=True, stdout=subprocess.DEVNULL)

        build()
        self.write("tests/lint/compile_cost.toml", 'compiler = "any"\nbatch = "1"\n[units]\n')
        code, text = self.script(script, "--build", "build/ci")
        self.assertEqual(code, 77, text)
        self.passes(script, "--build", "build/ci", "--update")
        self.passes(script, "--build", "build/ci")
        self.write("spec/a.cpp", "int main() {}\n" + "//\n" * 1000000)
        build()
        self.fails(r"thing: 0\.3\d units, expected at most", script, "--build", "build/ci")
        self.passes(script, "--build", "build/ci", "--update")
        self.passes(script, "--build", "build/ci")

    def test_coverage_counts_lines_by_folder(self) -> None:
        script = "sim_scripts/coverage.py"
        self.copy(script)
        self.write("spec/arith/a.cpp", "int main(int n, char**) {\n  if (n > 1) {\n    return 1;\n  }\n}\n")
        (self.root / "build/ci").mkdir(parents=True)
        self.fails(r"has no \.gcda files", script, "--build", "build/ci")
        self.command("g++", "--coverage", "-O0", "spec/arith/a.cpp", "-o", "build/ci/a")
        self.command("build/ci/a")
        code, text = self.script(script, "--build", "build/ci", "--missing", "missing.txt")
        self.assertEqual(code, 0, text)
        self.assertEqual(re.findall(r"^(\S+) +(\d+) of +(\d+) lines", text, re.MULTILINE),
                         [("all", "3", "4"), ("spec/arith", "3", "4")], text)
        self.assertEqual((self.root / "missing.txt").read_text(encoding="utf-8"), "spec/arith/a.cpp:3-3\n")

    def test_fuzz_tests_run_until_all_inputs_were_tried(self) -> None:
        script = "sim_scripts/fuzz.py"
        self.copy(script)
        (self.root / "build/tests").mkdir(parents=True)
        self.fails("has no fuzz tests", script, "--build", "build")
        self.write("build/tests/a_fuzz_test", """#!/usr/bin/env python3
import json, os, sys, time
if "--gtest_list_tests" in sys.argv:
    print("Fuzz.\\n  Damaged\\n  CountsNothing")
    sys.exit()
inputs = int(os.environ.get("TPU_FUZZ_INPUTS", 2000))
seed = int(os.environ.get("TPU_FUZZ_SEED", 0))
if os.path.exists("fail") and seed == int(open("fail").read()):
    sys.exit("input 5 is not survived")
time.sleep(inputs / 100000)
case = {"inputs": str(inputs)} if sys.argv[1].endswith("Damaged") else {}
report = {"testsuites": [{"testsuite": [case]}]}
open(sys.argv[2].split(":", 1)[1], "w").write(json.dumps(report))
""")
        (self.root / "build/tests/a_fuzz_test").chmod(0o755)
        text = self.script(script, "--build", "build", "--inputs", "9000", "--state", "state.json")[1]
        inputs = int(re.search(r"\| all \| ([\d,]+) ", text)[1].replace(",", ""))
        self.assertTrue(9000 <= inputs < 20000, text)
        self.assertNotIn("CountsNothing", text)
        self.write("fail", str(1000 + json.loads((self.root / "state.json").read_text())["Fuzz.Damaged"]["runs"]))
        self.fails(r"input 5 is not survived(.|\n)*TPU_FUZZ_SEED=\d+ TPU_FUZZ_INPUTS=\d+ .*a_fuzz_test", script,
                   "--build", "build", "--inputs", "90000", "--state", "state.json")


if __name__ == "__main__":
    unittest.main()
