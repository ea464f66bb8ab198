"""The genuine tpu-info shows the simulated board (sim_scripts/tpu_info), and Prometheus reads the metrics of its job.

Usage: tpu_info_test.py TPUBOARD DATA_FOLDER SCRIPT PYTHON. Exit code 77, "skipped", where the packages of PYTHON
(tests/requirements.txt) lack tpu-info, or the host allows no namespaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from running_jobs import JobTest

SKIPPED = 77
TPUBOARD, DATA, SCRIPT, PYTHON = sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3], Path(sys.argv[4])
TPU_INFO = PYTHON.parent / "tpu-info"
# Which families and samples Prometheus' own parser finds in the text on standard input.
PARSE = """
import json, sys
from prometheus_client.parser import text_string_to_metric_families
print(json.dumps({f.name: [f.type, [[s.labels, s.value] for s in f.samples]]
                  for f in text_string_to_metric_families(sys.stdin.read())}))
"""
# Asks the service of tpu-info for each metric that it lists: its values, on standard output.
ASK = """
import json, sys
import grpc
from tpu_info.proto import tpu_metric_service_pb2 as pb, tpu_metric_service_pb2_grpc as service
channel = grpc.secure_channel("localhost:" + sys.argv[1], grpc.local_channel_credentials())
stub = service.RuntimeMetricServiceStub(channel)
names = [each.metric_name for each in stub.ListSupportedMetrics(pb.ListSupportedMetricsRequest()).supported_metric]
print(json.dumps({name: [each.gauge.as_int for each in stub.GetRuntimeMetric(
    pb.MetricRequest(metric_name=name)).metric.metrics] for name in names}))
"""
FAULTS = """[[fault]]
kind = "ring_command"
where = "core 1"
at = "step 1"
[[fault]]
kind = "pcie_timeout"
where = "chip 0"
at = "step 1"
"""


class Served(JobTest):
    """A job, and who asks for its figures."""

    tpuboard, data = TPUBOARD, DATA

    def serve(self, *words: str) -> tuple[subprocess.Popen[str], int]:
        """`tpuboard monitor` as a server, and its port."""
        server = subprocess.Popen([TPUBOARD, "monitor", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env=self.environment)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        assert server.stdout
        line = server.stdout.readline()
        self.assertIn("localhost" if "--tpu-info" in words else "127.0.0.1", line)
        return server, int(line.rstrip().removesuffix("/metrics").rsplit(":", 1)[1])

    def test_tpu_info_prints_the_board(self) -> None:
        if not TPU_INFO.exists():
            self.skipTest(f"{TPU_INFO} is not there: tests/requirements.txt is not installed")
        with self.job() as job:
            shown = subprocess.run([SCRIPT, "--tpuboard", TPUBOARD, "--program", TPU_INFO], capture_output=True,
                                   text=True, env={**self.environment, "COLUMNS": "120"}, timeout=110, check=False)
            if shown.returncode == SKIPPED:
                self.skipTest(shown.stderr)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertIn("TPU v3 chip", shown.stdout)
            self.assertEqual(shown.stdout.count(str(job.pid)), 4, shown.stdout)
            usage = [line.split() for line in shown.stdout.splitlines() if "GiB /" in line]
            self.assertEqual(len(usage), 8, shown.stdout)
            for row in usage:
                self.assertIn("16.00", row, shown.stdout)
            duty = [word for row in usage for word in row if word.endswith("%")]
            self.assertEqual(len(duty), 8, shown.stdout)
            self.assertGreater(float(duty[0].rstrip("%")), 0)

    def test_faults_on_purpose_are_counted(self) -> None:
        if not TPU_INFO.exists():
            self.skipTest(f"{TPU_INFO} is not there: tests/requirements.txt is not installed")
        _, port = self.serve("--tpu-info", "0")
        _, web = self.serve("--prometheus", "0")
        (self.folder / "faults.toml").write_text(FAULTS)
        with self.job("--faults", str(self.folder / "faults.toml")) as job:
            self.wait_for(lambda: (self.report_of(job.pid) or {}).get("faults"))
            asked = subprocess.run([PYTHON, "-c", ASK, str(port)], capture_output=True, text=True, check=False,
                                   timeout=60)
            text = urllib.request.urlopen(f"http://127.0.0.1:{web}/metrics", timeout=30).read().decode()
            once = self.call("monitor", "--once")
        self.assertEqual(asked.returncode, 0, asked.stderr)
        metrics = json.loads(asked.stdout)
        self.assertEqual(metrics["tpuboard.faults.count"], [2], metrics)
        self.assertEqual(len(metrics["tpu.runtime.hbm.memory.total.bytes"]), 8, metrics)
        self.assertRegex(text, r'tpuboard_faults_total{pid="\d+",kind="ring_command",place="core 1"} 1\n')
        self.assertIn("fault on purpose pcie_timeout chip 0: happened 1 time", once.stdout)

    def test_without_a_job_tpu_info_has_nothing_to_ask(self) -> None:
        shown = subprocess.run([SCRIPT, "--tpuboard", TPUBOARD, "--program", "true"], capture_output=True, text=True,
                               env=self.environment, timeout=60, check=False)
        self.assertEqual(shown.returncode, 1)
        self.assertIn("no job is running", shown.stderr)

    def test_prometheus_reads_all_jobs(self) -> None:
        _, port = self.serve("--prometheus", "0")
        with self.job() as one, self.job(name="other") as other:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
        for pid in (one.pid, other.pid):
            self.assertIn(f'tpuboard_steps_total{{pid="{pid}"}} ', text)
            self.assertIn(f'tpuboard_core_time_cycles_total{{pid="{pid}",core="7",cause="links"}} ', text)
        if not TPU_INFO.exists():
            self.skipTest("the parser of Prometheus comes with tpu-info, which is not installed")
        parsed = subprocess.run([PYTHON, "-c", PARSE], input=text, capture_output=True, text=True, check=True)
        families = json.loads(parsed.stdout)
        self.assertEqual(families["tpuboard_steps"][0], "counter")
        kind, samples = families["tpuboard_hbm_used_bytes"]
        self.assertEqual((kind, len(samples)), ("gauge", 16))
        self.assertGreater(samples[0][1], 0)
        self.assertIn("train", families["tpuboard_job_info"][1][0][0]["command"])

    def test_prometheus_forgets_a_job_that_was_killed(self) -> None:
        _, port = self.serve("--prometheus", "0")
        with self.job() as job:
            job.kill()
            job.wait()
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
            self.assertNotIn("{", text)
            self.assertEqual([file.name for file in (self.folder / "tpuboard").iterdir()], [f"{job.pid}.json"],
                             "who looks deletes nothing")

    def test_one_file_of_another_version_does_not_hide_the_others(self) -> None:
        _, port = self.serve("--prometheus", "0")
        with self.job() as job:
            (self.folder / "tpuboard" / f"{os.getpid()}.json").write_text('{"format": 2}')
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
            self.assertIn(f'tpuboard_steps_total{{pid="{job.pid}"}} ', text)
            self.assertIn("tpuboard_unreadable_job_files 1\n", text)
            self.assertIn("expected format 1, found 2", text)
            once = self.call("monitor", "--once", "--json")
            self.assertEqual(json.loads(once.stdout)["pid"], job.pid, once.stderr)
            self.assertIn("expected format 1, found 2", once.stderr)

    def test_slow_clients_do_not_stop_the_others(self) -> None:
        """More of them than the library has threads, each with a line of its request now and then."""
        _, port = self.serve("--prometheus", "0")
        request = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(24)]
            for client in slow:
                client.sendall(request)
            begin = time.monotonic()
            ended: set[int] = set()
            while len(ended) < len(slow):
                self.assertLess(time.monotonic() - begin, 30, f"{len(ended)} of {len(slow)} have ended")
                asked = time.monotonic()
                text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
                self.assertIn("# TYPE tpuboard_loss gauge", text)
                self.assertLess(time.monotonic() - asked, 3)
                for number, client in enumerate(slow):
                    try:
                        client.sendall(b"a: b\r\n")
                    except OSError:
                        ended.add(number)
                time.sleep(0.2)

    def test_without_jobs_there_are_no_samples(self) -> None:
        _, port = self.serve("--prometheus", "0")
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
        self.assertIn("# TYPE tpuboard_loss gauge", text)
        self.assertNotIn("{", text)
        with self.assertRaises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)

    def test_requests_to_another_host_get_no_figures(self) -> None:
        _, port = self.serve("--prometheus", "0")
        url = f"http://127.0.0.1:{port}/metrics"
        for host in (f"localhost:{port}", "127.0.0.1", "localhost", f"[::1]:{port}"):
            request = urllib.request.Request(url, headers={"Host": host})
            self.assertIn("tpuboard_loss", urllib.request.urlopen(request, timeout=30).read().decode())
        for host in (f"page.example:{port}", "127.0.0.1.page.example", "localhost.example"):
            request = urllib.request.Request(url, headers={"Host": host})
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=30)
            self.assertEqual(caught.exception.code, 403)
            self.assertNotIn("tpuboard_loss", caught.exception.read().decode())

    def test_a_port_that_is_taken(self) -> None:
        for option in ("--prometheus", "--tpu-info"):
            with self.job():
                _, port = self.serve(option, "0")
                second = self.call("monitor", option, str(port))
                self.assertEqual(second.returncode, 1)
                self.assertIn(f"port {port} of ", second.stderr)
                self.assertIn(f"choose another with {option} PORT", second.stderr)


if __name__ == "__main__":
    program = unittest.main(argv=[sys.argv[0], "-v"], exit=False)
    for _, reason in program.result.skipped:
        print(reason)
    only_skipped = program.result.wasSuccessful() and program.result.skipped
    sys.exit(SKIPPED if only_skipped else 0 if program.result.wasSuccessful() else 1)
