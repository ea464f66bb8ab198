"""Reports of real steps: sums close, the re-timing model tells what the board does, and the page shows it.

    report_test.py TPUC TPUBOARD DATA_FOLDER EXAMPLES

The page runs in headless Chromium where that is installed, else under Node with a document of its own; what was used is
printed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

TPUC, TPUBOARD, DATA, EXAMPLES = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
PROGRAMS = [DATA / "mlp_sgd.mlirbc", DATA / "dots.mlirbc", DATA / "collectives.mlirbc",
            EXAMPLES / "mnist_convnet/train_step.mlirbc"]
MOST_ERROR = 0.01  # of the re-timing model
# What a change halves, as numbers of the v3-8 board that a run can have.
SETTINGS = {
    "HBM bandwidth": ["hbm.gbps_per_chip=1800"],
    "latency of local transfers": ["dma.in_fixed_ns=230", "dma.out_fixed_ns=199", "dma.local_fixed_ns=50"],
    "on-chip copies": ["dma.local_bytes_per_cycle=1024"],
    "transfers in flight of a DMA queue": ["dma.in_flight=8"],
    "bandwidth of links": ["ici.link_gbps=164", "ici.core_port_gbps=320"],
    "latency of links": ["ici.hop_ns=925", "ici.extra_hop_ns=460", "ici.local_ns=197", "ici.control_hop_ns=155"],
    "length of queues": ["core.queue_depth=64"],
}


def run(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([TPUBOARD, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Report(unittest.TestCase):
    folder: Path
    programs: dict[str, Path]
    reports: dict[str, dict[str, Any]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(tempfile.mkdtemp())
        cls.programs, cls.reports = {}, {}
        for artifact in PROGRAMS:
            name = f"{artifact.parent.name}_{artifact.stem}"
            program = cls.folder / f"{name}.tpuexe"
            subprocess.run([TPUC, str(artifact), "-o", str(program)], check=True)
            cls.programs[name] = program
            cls.reports[name] = cls.report(program, "-o", cls.page(name))

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(cls.folder)

    @classmethod
    def page(cls, name: str) -> Path:
        return cls.folder / f"{name}.html"

    @classmethod
    def report(cls, program: Path, *options: str | Path) -> dict[str, Any]:
        path = cls.folder / "report.json"
        run("report", program, "--json", path, *options)
        figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return figures

    def test_kinds_and_operations_sum_to_the_step(self) -> None:
        for name, report in self.reports.items():
            with self.subTest(name):
                for core in report["cores"]:
                    self.assertEqual(sum(core["cycles"].values()), report["cycles"])
                idle = report["kinds"][report["idle_kinds_from"]:]
                waits = sum(cycles for kind, cycles in report["average"].items() if kind in idle)
                ops = sum(op["cycles"] for op in report["ops"])
                self.assertAlmostEqual((ops + waits) / report["cycles"], 1, delta=1e-9)
                self.assertEqual(sum(report["critical_path"]["by_kind"].values()), report["retimed"]["cycles"])

    def test_each_moment_of_the_critical_path_has_its_cause(self) -> None:
        """A signal takes a cycle; more between two pieces would be a wait that nothing explains."""
        for name, report in self.reports.items():
            with self.subTest(name):
                path = report["critical_path"]
                self.assertLessEqual(path["by_kind"].get("semaphores", 0), path["all_pieces"])

    def test_the_step_is_that_of_a_run(self) -> None:
        for name, program in self.programs.items():
            with self.subTest(name):
                figures = self.folder / "run.json"
                run("run", program, "--no-data", "--json", figures)
                counted = json.loads(figures.read_text(encoding="utf-8"))
                cores = {core["core"]: core["end"] - core["begin"] for core in self.reports[name]["cores"]}
                for core, cycles in enumerate(counted["sim_cycles_per_core"]):
                    self.assertEqual(cores.get(core, 0), cycles)
                flops = sum(op["flops"] for op in self.reports[name]["ops"]) * len(cores)
                self.assertAlmostEqual(flops, sum(counted["counters"]["mxu_flops"]), delta=1)

    def test_the_model_without_a_change_is_the_board(self) -> None:
        for name, report in self.reports.items():
            with self.subTest(name):
                print(f"{name}: {report['cycles']} cycles, error {100 * report['retimed']['error']:.4f} %")
                self.assertLess(abs(report["retimed"]["error"]), MOST_ERROR)

    def test_the_model_with_a_change_is_a_board_with_that_number(self) -> None:
        compared = 0
        for name, report in self.reports.items():
            for change in report["changes"]:
                if change["name"] not in SETTINGS or change["is_op"]:
                    continue
                with self.subTest(name=name, change=change["name"]):
                    options = [text for setting in SETTINGS[change["name"]] for text in ("--set", setting)]
                    board = self.report(self.programs[name], "--changes", "0", *options)
                    # Without the time by which cores start apart, in which the firmware has a part.
                    cycles = board["cycles"] - max(core["begin"] for core in board["cores"])
                    model = change["cycles_at_half"] - change["halved_skew"]
                    error = model / cycles - 1
                    print(f"{name}, {change['name']} halved: board {cycles}, model {model}, "
                          f"{100 * error:+.3f} %")
                    self.assertLess(abs(error), MOST_ERROR)
                    compared += 1
        self.assertGreaterEqual(compared, 6)

    def test_changes_come_in_order_and_shorten_the_step(self) -> None:
        for name, report in self.reports.items():
            with self.subTest(name):
                removed = [change["cycles_without"] for change in report["changes"]]
                self.assertEqual(removed, sorted(removed))
                self.assertLessEqual(len(removed), 10)
                self.assertTrue(removed and removed[0] < report["retimed"]["cycles"])

    def test_operations_have_names_and_lines(self) -> None:
        ops = self.reports["data_mlp_sgd"]["ops"]
        self.assertTrue(any("dot_general" in op["name"] and ".py:" in op["source"] for op in ops))

    def test_memory_stays_within_the_board(self) -> None:
        for name, report in self.reports.items():
            with self.subTest(name):
                memory = report["memory"]
                self.assertTrue(memory["vmem"])
                self.assertLessEqual(max(size for _, size in memory["vmem"]), memory["vmem_bytes"])

    def test_a_recorded_step_gives_the_same_report(self) -> None:
        record = self.folder / "mlp.tpurec"
        run("run", self.programs["data_mlp_sgd"], "--no-data", "--record", record)
        self.assertEqual(self.report(record), self.reports["data_mlp_sgd"])

    def page_texts(self, name: str, fragment: str = "") -> dict[str, list[str]]:
        """What the page shows: text of table rows by section, after its script has run."""
        chromium = shutil.which("chromium")
        if chromium is not None:
            done = subprocess.run(
                [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                 "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={self.folder / 'chromium'}",
                 f"file://{self.page(name)}{fragment}"], capture_output=True, text=True, check=True, timeout=60)
            return parse(done.stdout)
        node = shutil.which("node")
        if node is None:
            self.skipTest("neither chromium nor node is installed")
        script = Path(__file__).with_name("page_under_node.js")
        done = subprocess.run([node, str(script), str(self.page(name)), fragment], capture_output=True,
                              text=True, check=True, timeout=60)
        return parse(done.stdout)

    def test_the_page_shows_the_report(self) -> None:
        print("pages run in", shutil.which("chromium") or shutil.which("node") or "nothing")
        for name, report in self.reports.items():
            with self.subTest(name):
                seen = self.page_texts(name)
                self.assertEqual(len(seen["ops"]), len(report["ops"]))
                self.assertIn(report["ops"][0]["name"], seen["ops"][0])
                self.assertEqual(len(seen["changes"]), len(report["changes"]))
                for section in ("waterfall", "path", "floor", "cores", "memory"):
                    self.assertIn(section, seen)

    def test_faults_of_a_recorded_step_are_on_the_page(self) -> None:
        file, record = self.folder / "faults.toml", self.folder / "faulty.tpurec"
        file.write_text('[[fault]]\nkind = "hbm"\nwhere = "core 0"\nat = "step 0"\naddress = "slot 0"\n',
                        encoding="utf-8")
        run("run", self.programs["data_mlp_sgd"], "--no-data", "--faults", file, "--record", record)
        faults = self.report(record, "-o", self.page("faulty"))["faults"]
        self.assertEqual([fault["damage"] for fault in faults], [False, True])  # it is read
        self.assertEqual((faults[0]["core"], faults[0]["kind"]), (0, "hbm"))
        self.assertLess(faults[0]["cycle"], faults[1]["cycle"])
        seen = self.page_texts("faulty")["faults"]
        self.assertEqual(len(seen), 2)
        for text, fault in zip(seen, faults, strict=True):
            self.assertIn(fault["text"], text)
        self.assertNotIn("faults", self.page_texts("data_mlp_sgd"))

    def test_early_pages_show_what_is_known(self) -> None:
        report = self.reports["mnist_convnet_train_step"]
        text = self.page("mnist_convnet_train_step").read_text(encoding="utf-8")
        for flag, left_out in (("causes_to_come", ["retimed", "critical_path", "changes"]), ("changes_to_come", [])):
            with self.subTest(flag):
                early = {key: value for key, value in report.items() if key not in left_out} | {flag: True}
                line = "const report = " + json.dumps(early) + ";"
                self.page("early").write_text(re.sub("const report = .*;", lambda _, line=line: line, text),
                                              encoding="utf-8")
                seen = self.page_texts("early")
                self.assertEqual(len(seen["ops"]), len(report["ops"]))
                self.assertEqual(seen["changes"], [])
                self.assertEqual("path" in seen, flag == "changes_to_come")
                self.assertIn("memory", seen)

    def test_a_column_sorts_the_operations(self) -> None:
        report = self.reports["mnist_convnet_train_step"]
        seen = self.page_texts("mnist_convnet_train_step", "#sort=flops")["ops"]
        most = max(report["ops"], key=lambda op: op["flops"])
        self.assertIn(most["name"], seen[0])

    def test_the_page_needs_no_network(self) -> None:
        text = self.page("data_mlp_sgd").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"https?://[^\"' ]+", text)), {"http://www.w3.org/2000/svg"})
        self.assertNotIn("<link", text)
        self.assertNotIn("src=", text)

    def test_bad_input(self) -> None:
        program = self.programs["data_mlp_sgd"]
        with self.subTest("no output"):
            self.assertIn("give -o PAGE.html", run("report", program, code=2).stderr)
        with self.subTest("unwritable output"):
            text = run("report", program, "-o", self.folder / "no/such/page.html", code=1).stderr
            self.assertIn("no/such/page.html", text)
        with self.subTest("the page would replace the program"):
            self.assertIn("input", run("report", program, "-o", program, code=1).stderr)
        with self.subTest("no such program"):
            self.assertIn("none.tpuexe", run("report", self.folder / "none.tpuexe", "-o", "x.html", code=1).stderr)
        with self.subTest("a damaged record"):
            record = self.folder / "bad.tpurec"
            run("run", program, "--no-data", "--record", record)
            data = bytearray(record.read_bytes())
            data[len(data) // 2] ^= 1
            record.write_bytes(data)
            self.assertIn("damaged", run("report", record, "-o", "x.html", code=1).stderr)
        with self.subTest("a step that never ran"):
            text = run("run", program, "--no-data", "--record", self.folder / "r", "--record-step", "5", code=1).stderr
            self.assertIn("no step 5 ran", text)
        with self.subTest("a board without time"):
            text = run("report", program, "-o", "x.html", "--transport", "null", code=1).stderr
            self.assertIn("needs --transport to be sim", text)

    def test_a_program_that_fails_says_why(self) -> None:
        program = self.folder / "control.tpuexe"
        subprocess.run([TPUC, str(DATA / "control.mlirbc"), "-o", str(program)], check=True)
        page = self.folder / "control.html"
        text = run("report", program, "-o", page, code=1).stderr
        self.assertIn("--record", text)
        self.assertFalse(page.exists())


def parse(html: str) -> dict[str, list[str]]:
    """Rows of the bodies of tables, by section."""
    seen: dict[str, list[str]] = {}
    for name, body in re.findall(r'<section id="(\w+)">(.*?)</section>', html, re.DOTALL):
        rows = "".join(re.findall(r"<tbody>(.*?)</tbody>", body, re.DOTALL))
        seen[name] = [re.sub(r"<[^>]*>", " ", row) for row in re.findall(r"<tr.*?</tr>", rows, re.DOTALL)]
    return seen


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
