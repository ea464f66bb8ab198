"""`tpuboard monitor` beside `tpuboard train`, as a user runs them: live figures, the end of a job, a killed one.

Usage: process_test.py TPUBOARD DATA_FOLDER
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from running_jobs import JobTest

TPUBOARD, DATA = sys.argv[1], Path(sys.argv[2]).resolve()


class Process(JobTest):
    """A monitor beside or inside a job."""

    tpuboard, data = TPUBOARD, DATA

    def test_figures_of_a_running_job(self) -> None:
        with self.job() as process:
            one = self.call("monitor", "--once", "--json")
            self.assertEqual(one.returncode, 0, one.stderr)
            report = json.loads(one.stdout)
            self.assertEqual(report["pid"], process.pid)
            self.assertEqual(report["board"], "v3_8")
            self.assertEqual(len(report["cores"]), 8)
            self.assertGreater(report["progress"]["loss"], 0)
            lately = report["lately"]
            self.assertGreater(lately["mxu"], 0)
            self.assertAlmostEqual(sum(lately["time"].values()), 1, places=9)
            self.assertAlmostEqual(lately["idle"], lately["time"]["input"] + lately["time"]["host"], places=9)
            self.assertGreater(lately["time"]["links"], 0, "gradients are summed over the cores")
            self.assertGreater(report["cores"][7]["hbm_used"], 0)
            view = self.call("monitor", "--once", "--pid", str(process.pid))
            for text in ("steps/s", "loss", "all-reduce", "TPU:7", "left"):
                self.assertIn(text, view.stdout)

    def test_the_monitor_ends_with_its_job(self) -> None:
        with self.job() as process, subprocess.Popen(
                [TPUBOARD, "monitor", "--interval", "0.05"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env=self.environment) as monitor:
            assert monitor.stdout and monitor.stderr
            self.assertEqual(json.loads(monitor.stdout.readline())["pid"], process.pid)
            process.send_signal(signal.SIGINT)
            _, said = monitor.communicate()  # both streams: a full pipe would hold the monitor
            self.assertIn(f"job {process.pid} has ended", said)
            self.assertEqual(monitor.wait(), 0)

    def test_a_pipe_gets_a_line_for_each_sample(self) -> None:
        for words in ((), ("--json",)):
            with self.job() as process, subprocess.Popen(
                    [TPUBOARD, "monitor", "--interval", "0.05", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    text=True, env=self.environment) as monitor:
                assert monitor.stdout
                taken = [json.loads(monitor.stdout.readline())["taken"] for _ in range(2)]
                self.assertEqual(taken, sorted(set(taken)), "many looks of one sample are one line")
                process.send_signal(signal.SIGINT)
                rest, _ = monitor.communicate()
                for line in rest.splitlines():
                    self.assertEqual(json.loads(line)["pid"], process.pid)
        with self.job() as process:
            self.assertNotIn("\x1b", self.call("monitor", "--once").stdout)
            names = [file.read_text().strip() for file in Path(f"/proc/{process.pid}/task").glob("*/comm")]
            self.assertEqual(names.count("monitor"), 1, names)

    def test_an_interval_is_a_time(self) -> None:
        for text in ("nan", "-nan", "inf", "0", "-1", "1e400", "soon", "0.01", "1e9"):
            refused = self.call("monitor", "--interval", text)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(f"--interval: invalid value '{text}': expected a number of seconds from 0.05 to 86400",
                          refused.stderr)

    def test_a_killed_job_is_told(self) -> None:
        with self.job() as process, subprocess.Popen(
                [TPUBOARD, "monitor", "--interval", "0.05"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env=self.environment) as monitor:
            assert monitor.stdout and monitor.stderr
            monitor.stdout.readline()
            process.kill()
            process.wait()
            self.assertIn(f"job {process.pid} was killed", monitor.communicate()[1])
            self.assertEqual(monitor.wait(), 1)
        late = self.call("monitor")
        self.assertEqual(late.returncode, 1)
        self.assertIn("no job is running", late.stderr)

    def test_two_jobs_want_a_choice(self) -> None:
        with self.job() as one, self.job(name="other") as other:
            refused = self.call("monitor", "--once")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("2 jobs are running", refused.stderr)
            self.assertIn(f"--pid {one.pid}", refused.stderr)
            chosen = self.call("monitor", "--once", "--json", "--pid", str(other.pid))
            self.assertEqual(json.loads(chosen.stdout)["pid"], other.pid)

    def test_the_view_inside_a_job(self) -> None:
        with self.job("--monitor") as process:
            assert process.stderr
            lines = [json.loads(process.stderr.readline()) for _ in range(2)]
            self.assertEqual(lines[0]["pid"], process.pid)
            self.assertLess(lines[0]["taken"], lines[1]["taken"])

    def test_the_bar_of_a_training_run(self) -> None:
        words = ("train", str(self.folder / "c.toml"), "--out", str(self.folder / "out"), "--steps", "40")
        shown = self.on_a_terminal(TPUBOARD, *words)
        self.assertRegex(shown, r"\[#+ *\] 40/40 .* 0 s left")
        quiet = self.call(*words)
        self.assertEqual(quiet.returncode, 0, quiet.stderr)
        self.assertNotIn("left", quiet.stdout + quiet.stderr)

    def test_the_view_takes_the_place_of_the_bar(self) -> None:
        shown = self.on_a_terminal(TPUBOARD, "train", str(self.folder / "c.toml"), "--out", str(self.folder / "out"),
                                   "--steps", "40", "--monitor")
        self.assertIn("\x1b[2J", shown)
        self.assertIn("step 40 of 40", shown)
        self.assertNotIn("] 40/40", shown)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
