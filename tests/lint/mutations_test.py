"""The mutants of sim_scripts/mutations.py: which places of a source they change, and that a program with all of them
behaves as before without one, and as changed with one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sim_scripts"))

import mutants  # noqa: E402
import mutations  # noqa: E402

SOURCE = r"""#include <cstdio>
#include <vector>
#define LIMIT (1 + 1)
namespace {
constexpr int kTable[] = {1, 2};
constexpr int twice(int x) { return x * 2; }
struct Point {
  Point(int a, int b) : x{a}, y(b) {
    total += a;
  }
  int x, y;
  int total = 0;
};
int loop(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) {
    sum += i;
  }
  return sum;
}
bool both(bool a, bool b) {
  if (a && !b) return true;
  return false;
}
int counted(const std::vector<int>& values) {
  int found = 0;
  const auto look = [&](int v) { found += v > 1 ? 1 : 0; };
  for (const int v : values) look(v);
  return found;
}
int order(int x) {
  const int base = x + 10;
  int y = base;
  y += 1;
  y *= 3;
  return y;
}
}  // namespace
int main() {
  const Point p(2, 3);
  std::printf("%d %d %d %d %d\n", loop(4), both(true, false), counted({1, 2, 3}), order(0), p.total);
}
"""
RIGHT = "6 1 2 33 2\n"


class Mutations(unittest.TestCase):
    def setUp(self) -> None:
        self.source = mutations.Source(SOURCE)
        self.places = list(self.source.places())

    def changed(self, place: mutations.Place) -> str:
        start = SOURCE.rfind("\n", 0, place.start) + 1
        end = SOURCE.find("\n", place.end)
        return (SOURCE[start:place.start] + place.new + SOURCE[place.end:end]).strip()

    def test_code_is_changed_and_nothing_else(self) -> None:
        texts = {self.changed(place) for place in self.places}
        for text in ("for (int i = 0; i <= n; ++i) {", "for (int i = 0; i < n; --i) {", "sum -= i;", ";",
                     "if (a || !b) return true;", "if (a && b) return true;", "return true;", "y *= 3; y += 1;",
                     "const int base = x - 10;", "const int base = x + 11;", "y += 2;", "y *= 4;",
                     "const auto look = [&](int v) { found += v >= 1 ? 1 : 0; };"):
            self.assertIn(text, texts)
        for place in self.places:
            line = SOURCE.splitlines()[SOURCE.count("\n", 0, place.start)]
            self.assertNotRegex(line, r"#|constexpr|x\{a\}|int x, y|int total")

    def test_literals(self) -> None:
        for text, new in (("7", "8"), ("0x1fU", "0x20U"), ("1'000", "1001"), ("1.5F", "2.5F"), ("017", None),
                          ("1e9", None)):
            self.assertEqual(mutations.next_number(text), new)

    def test_a_bracket_too_many_is_an_error(self) -> None:
        self.assertRaisesRegex(ValueError, "bracket", mutations.Source, "int f() { return (1; }")

    def test_one_program_has_all_mutants(self) -> None:
        chosen: dict[int, mutations.Place] = {}
        spans: list[tuple[int, int]] = []
        for place in self.places:
            start, end = self.source.span(place)
            if not any(start < other[1] and other[0] < end for other in spans):
                spans.append((start, end))
                chosen[len(chosen) + 1] = place
        self.assertGreater(len(chosen), 10)
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            (Path(folder) / mutants.HEADER).write_text(mutants.SUPPORT, encoding="utf-8")
            (Path(folder) / "a.cpp").write_text(self.source.with_mutants(chosen, mutants.HEADER), encoding="utf-8")
            subprocess.run(["g++", "-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-o", program,
                            Path(folder) / "a.cpp"], check=True)

            def says(number: str) -> str:
                try:
                    return subprocess.run([program], capture_output=True, text=True, check=False, timeout=2,
                                          env={"TPU_MUTANT": number}).stdout
                except subprocess.TimeoutExpired:
                    return "hangs"

            self.assertEqual(says("0"), RIGHT)
            noticed = [number for number in chosen if says(str(number)) != RIGHT]
            self.assertGreater(len(noticed), len(chosen) // 2)
            reached = Path(folder) / "reached"
            subprocess.run([program], check=True, stdout=subprocess.DEVNULL,
                           env={"TPU_MUTANT": "reach", "TPU_MUTANT_REACHED": str(reached)})
            lines = reached.read_text(encoding="utf-8").splitlines()
            self.assertEqual(len(lines), len(set(lines)))
            self.assertLessEqual(set(map(str, noticed)), {line.split()[0] for line in lines})


if __name__ == "__main__":
    unittest.main()
