"""A timeline as Perfetto itself reads it: every command of the text trace of the same run is a slice with its times.

    timeline_file_test.py TPUC TPUBOARD DATA_FOLDER
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import trace_processor  # noqa: E402

TPUC, TPUBOARD, DATA = sys.argv[1], sys.argv[2], Path(sys.argv[3])
CLOCK_MHZ = 940

SLICES = """
select parent.name, track.name, slice.category, slice.ts, slice.dur, op.int_value, slice.name, line.int_value
from slice
join track on slice.track_id = track.id
join track parent on track.parent_id = parent.id
left join args op on op.arg_set_id = slice.arg_set_id and op.key = 'debug.op'
left join args line on line.arg_set_id = slice.arg_set_id and line.key = 'source.line_number'
where slice.category is not null
"""
COUNTERS = """
select parent.name, track.name, counter.ts, counter.value
from counter join track on counter.track_id = track.id join track parent on track.parent_id = parent.id
order by counter.ts
"""
ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
FLOWS = """
select source.ts + source.dur, destination.ts, source.category, destination.category
from flow join slice source on flow.slice_out = source.id join slice destination on flow.slice_in = destination.id
"""


LACKING = trace_processor.missing()
by_trace_processor = unittest.skipIf(bool(LACKING), f"no trace processor: {LACKING}")


def nanoseconds(cycle: int) -> int:
    """As the timeline rounds."""
    return cycle * 1000 // CLOCK_MHZ


class TimelineFile(unittest.TestCase):
    folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(tempfile.mkdtemp())
        subprocess.run([TPUC, str(DATA / "mlp_sgd.mlirbc"), "-o", str(cls.folder / "p.tpuexe")], check=True)
        cls.run_board("whole")

    @classmethod
    def run_board(cls, name: str, *options: str) -> None:
        subprocess.run([TPUBOARD, "run", str(cls.folder / "p.tpuexe"), "--no-data", "--launches", "3",
                        "--trace", str(cls.folder / f"{name}.txt"),
                        "--timeline", str(cls.folder / f"{name}.pftrace"),
                        "--json", str(cls.folder / f"{name}.json"), *options],
                       check=True, stdout=subprocess.DEVNULL)

    def commands(self, name: str, steps: range = range(3)) -> collections.Counter:
        """Of the text trace: core, queue, opcode, begin and length in nanoseconds, op."""
        found: collections.Counter = collections.Counter()
        for line in (self.folder / f"{name}.txt").read_text(encoding="utf-8").splitlines():
            words = line.split()
            if len(words) != 9:
                continue
            start, end = nanoseconds(int(words[0])), nanoseconds(int(words[1]))
            op, step = int(words[5].split("=")[1]), int(words[7].split("=")[1])
            if step in steps:
                found[words[2], words[3], words[4], start, end - start, op] += 1
        return found

    def slices(self, name: str) -> tuple[collections.Counter, list[tuple]]:
        errors, rows = trace_processor.query(self.folder / f"{name}.pftrace", ERRORS, SLICES)
        self.assertEqual(errors, [])
        found = collections.Counter((core.split()[0][4:], track.split(" (")[0], category, ts, dur, op)
                                    for core, track, category, ts, dur, op, _, _ in rows)
        return found, rows

    @by_trace_processor
    def test_every_command_is_a_slice(self) -> None:
        found, rows = self.slices("whole")
        commands = self.commands("whole")
        self.assertGreater(commands.total(), 1000)
        self.assertEqual(found, commands)
        self.assertTrue(all(not name.startswith("op ") for *_, name, _ in rows))
        self.assertGreater(sum(line is not None for *_, line in rows), len(rows) / 2)

    @by_trace_processor
    def test_flows_go_from_who_signals_to_who_waits(self) -> None:
        errors, flows = trace_processor.query(self.folder / "whole.pftrace", ERRORS, FLOWS)
        self.assertEqual(errors, [])
        self.assertGreater(len(flows), 100)
        # A wait ends when a signal is there: no command starts before the one that lets it has ended.
        self.assertEqual([flow for flow in flows if flow[1] < flow[0]], [])

    @by_trace_processor
    def test_counters_return_to_nothing(self) -> None:
        (rows,) = trace_processor.query(self.folder / "whole.pftrace", COUNTERS)
        most: dict[str, float] = {}
        last: dict[tuple[str, str], float] = {}
        for core, track, _, value in rows:
            most[track] = max(most.get(track, 0), value)
            last[core, track] = value
        self.assertTrue(set(last.values()) == {0}, last)
        self.assertGreater(most["mxu0 use"], 0)
        self.assertLessEqual(most["mxu0 use"], 100)
        self.assertGreater(most["HBM read"], 0)
        self.assertLessEqual(most["HBM read"], 900_000)  # MB/s of a chip
        self.assertGreater(most["sent to other cores"], 0)
        self.assertGreater(most["dma_in queued"], 0)

    @by_trace_processor
    def test_a_window_of_steps(self) -> None:
        self.run_board("window", "--timeline-steps", "1..1")
        found, _ = self.slices("window")
        self.assertEqual(found, self.commands("window", range(1, 2)))
        whole = (self.folder / "whole.pftrace").stat().st_size
        self.assertLess((self.folder / "window.pftrace").stat().st_size, whole / 2)

    @by_trace_processor
    def test_perfettos_own_messages_parse_it(self) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

        trace = protos.Trace.FromString((self.folder / "whole.pftrace").read_bytes())
        kinds = collections.Counter(packet.WhichOneof("data") for packet in trace.packet)
        self.assertGreater(kinds["track_event"], 2 * self.commands("whole").total())
        self.assertEqual(trace.packet[0].sequence_flags, 3)

    def test_counters_have_names_and_are_those_of_the_trace(self) -> None:
        counters = json.loads((self.folder / "whole.json").read_text(encoding="utf-8"))["counters"]
        commands: collections.Counter = collections.Counter()
        spans: dict[tuple[int, str], list[tuple[int, int]]] = collections.defaultdict(list)
        for line in (self.folder / "whole.txt").read_text(encoding="utf-8").splitlines():
            words = line.split()
            if len(words) == 9:
                commands[int(words[2]), words[3]] += 1
                spans[int(words[2]), words[3]].append((int(words[0]), int(words[1])))
        for (core, queue), count in commands.items():
            self.assertEqual(counters[f"{queue}_commands"][core], count)
            busy, until = 0, 0
            for start, end in sorted(spans[core, queue]):
                busy += max(0, end - max(start, until))
                until = max(until, end)
            self.assertEqual(counters[f"{queue}_busy_cycles"][core], busy)
        for name in ("stall_cycles", "issue_stall_cycles", "hbm_read_bytes", "hbm_write_bytes", "ici_sent_bytes"):
            self.assertEqual(len(counters[name]), 8)
        self.assertGreater(min(counters["stall_cycles"]), 0)
        self.assertGreater(min(counters["hbm_read_bytes"]), 0)

    def test_the_picture_is_that_of_the_text(self) -> None:
        pictures = []
        for file, clock in (("whole.txt", ("--clock-mhz", str(CLOCK_MHZ))), ("whole.pftrace", ())):  # which has it
            out = self.folder / (file + ".svg")
            subprocess.run([sys.executable, str(ROOT / "sim_scripts" / "timeline.py"), str(self.folder / file),
                            "-o", str(out), *clock, "--core", "3"], check=True)
            pictures.append(out.read_text(encoding="utf-8"))
        self.assertEqual(pictures[0], pictures[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
