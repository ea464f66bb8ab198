"""Emits the SystemVerilog package of the array's default parameters, from a board file."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def emit_mxu_pkg(board: dict[str, dict[str, Any]], out: Path) -> None:
    """Writes mxu_board_pkg.sv: the sizes of the array as the default board has them."""
    rows = [("Rows", "mxu.rows"), ("Cols", "mxu.cols"), ("Skew", "mxu.skew"),
            ("Chains", "mxu.chains"), ("SegmentRows", "mxu.segment_rows")]
    text = ["// Generated from spec/board/v3_8.toml by spec/gen. Do not edit.", "package mxu_board_pkg;"]
    text += [f"  localparam int unsigned {name} = {board[key]['value']};  // [{board[key]['unit']}]"
             for name, key in rows]
    text += ["endpackage", ""]
    (out / "mxu_board_pkg.sv").write_text("\n".join(text))
