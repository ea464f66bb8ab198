"""Times and classes of ParaDnn's traces on a v2-8, from the figures that its repository holds, as truth_points.json.

Reads scripts/data/{fc_trace_10sec,fc_trace_10sec_opbreakdown,tpu_fc}.json of Emma926/paradnn (Apache-2.0, commit
60a25ff): op profiles of about 10 s, the one with the highest use of the matrix units for each network, and the steps a
second that TensorFlow logged. Kept are networks whose profiles wait for input at most 1 % of the time.

What the figures are shares of is not written there. Taken are 22.5 TFLOP/s and 300 GB/s a core, an eighth of the 180
TFLOP/s and 2,400 GB/s that the board was sold with: then bytes, times and shares of bandwidth of all classes agree
within 1 %. With 22.5 TFLOP/s and 350 GB/s (the chip's later published 700) they are 17 % apart. If the peak was meant
as 22.9 TFLOP/s, all times are 2 % shorter.

A profile does not say how many steps it holds. The matmuls' operations do, since 6 * batch * weights are known (4 for
the first layer), and so do the bytes of the other classes, which are in fixed proportion to the parameters in all
profiles: loop fusion 28, non-fusion elementwise 12, cross-replica-sum 8. Each class is divided by its own count, so
that a step that is cut off by the profile's end does no harm. What is missing to the logged step is time in which no op
runs, `pause_ms`.

Usage: truth_traces.py PARADNN/scripts/data OUT.json
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

CORES, PEAK, BANDWIDTH = 8, 22.5e12, 300e9
LABEL = re.compile(r"layer_(\d+)-node_(\d+)-input_2000-output_1000-bs_(\d+)(?:-(.*))?")
BYTES = {"loop fusion": 28, "non-fusion elementwise": 12, "cross-replica-sum": 8}
CLASSES = {"output fusion": "matmul", "loop fusion": "loop fusion", "non-fusion elementwise": "lone elementwise",
           "cross-replica-sum": "all-reduce", "data formatting": "data formatting", "input fusion": "loop fusion"}
SMALLEST = 10e6  # parameters: smaller steps are shorter than what the figures resolve


def rows(figures: dict) -> dict[str, dict]:
    """Columns of lists as a row a label; columns of another length tell of other things."""
    columns = {key: column for key, column in figures.items() if len(column) == len(figures["labels"])}
    return {label: {key: column[i] for key, column in columns.items()} for i, label in enumerate(figures["labels"])}


def point(overall: dict, classes: dict[str, dict], layers: int, nodes: int, batch: int) -> dict:
    """Milliseconds a step of each class, and what was measured beside them."""
    parameters = 2001 * nodes + (layers - 1) * (nodes + 1) * nodes + (nodes + 1) * 1000
    step_flops = batch / CORES * (6 * (nodes * nodes * (layers - 1) + nodes * 1000) + 4 * nodes * 2000)
    seconds = overall["intensity"] * overall["rawMB"] * 1e6 / (overall["flops_perc"] / 100 * PEAK)  # of all cores
    matmul = classes["output fusion"]
    matmul_steps = matmul["intensity"] * matmul["rawMB"] * 1e6 / step_flops
    times: dict[str, float] = {}
    for name, figures in classes.items():
        if name in CLASSES:
            steps = figures["rawMB"] * 1e6 / (BYTES[name] * parameters) if name in BYTES else matmul_steps
            times[CLASSES[name]] = times.get(CLASSES[name], 0) + figures["time_perc"] / 100 * seconds / steps * 1e3
    device = sum(times.values())
    return {"layers": layers, "nodes": nodes, "batch": batch, "parameters": parameters, "device_ms": round(device, 3),
            "classes_ms": {name: round(ms, 4) for name, ms in sorted(times.items())},
            "bytes": {CLASSES[name]: round(classes[name]["rawMB"] * 1e6 / matmul_steps / parameters, 2)
                      for name in ("output fusion", *BYTES)},
            "hbm_gbps": {CLASSES[name]: round(classes[name]["memory_bandwidth"] / 100 * BANDWIDTH / 1e9, 1)
                         for name in ("output fusion", "loop fusion", "non-fusion elementwise")},
            "mxu": round(step_flops / (times["matmul"] / 1e3) / 22.9376e12, 4)}


def main() -> None:
    """Command line."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    overall, by_class, logged = (rows(json.loads((folder / name).read_text(encoding="utf-8"))) for name in
                                 ("fc_trace_10sec.json", "fc_trace_10sec_opbreakdown.json", "tpu_fc.json"))
    classes: dict[str, dict] = {}
    for label, row in by_class.items():
        if match := LABEL.fullmatch(label):
            classes.setdefault(label[:match.start(4) - 1], {})[match[4]] = row
    points = []
    for label, row in overall.items():
        match = LABEL.fullmatch(label)
        if match and row["infeed_m"] <= 1 and label in logged:
            found = point(row, classes[label], *map(int, match.groups()[:3]))
            if found["parameters"] >= SMALLEST:
                step = 1000 / logged[label]["step_per_sec"]
                points.append(found | {"logged_ms": round(step, 3), "pause_ms": round(step - found["device_ms"], 3)})
    points.sort(key=lambda p: (p["nodes"], p["layers"], p["batch"]))
    lines = ",\n".join("  " + json.dumps(p) for p in points)
    out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{out}: {len(points)} points")


if __name__ == "__main__":
    main()
