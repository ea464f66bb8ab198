"""Runs the code of a notebook's page, as text, in one process: cell after cell, unchanged.

Usage: notebook.py PAGE [--mode single|spawn] [--small] [--work FOLDER]
PAGE is the text of a notebook in which a line `In [None]:` starts each cell. What follows the code of a cell is prose:
a cell is the longest beginning of the text up to the next cell that Python can parse. Lines with `!` are for a shell;
they are printed, not run.
  --mode single (default): all cells.  spawn: without those that use the device before a spawn, and with the call of
          `xmp.spawn` that the page has in a comment, as the page tells the reader to do.
  --small changes values between the cells: fewer and shorter texts.
  --work  where the fixtures go: a BERT of two layers in the folder bert-base-uncased, and a table of comments for what
          the page reads in /kaggle/input. Default: a temporary folder.
For PyTorch/XLA 2.5 and transformers 4.44, the last versions that have every name that the page uses.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WORDS = ("the", "a", "you", "are", "good", "bad", "nice", "awful", "page", "edit", "talk", "hate", "love", "please",
         "stop", "thanks")
TOXIC = {"bad", "awful", "hate", "stop"}
ROWS = 4200
CORES = 8
INPUT = "/kaggle/input/"
START = "In [None]:"


def parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError:
        return False
    return True


def shell_as_calls(text: str) -> str:
    """`!command` as a call that Python can parse."""
    return re.sub(r"^(\s*)!(.*)$", lambda line: f"{line[1]}shell({line[2]!r})", text, flags=re.MULTILINE)


def cells_of(page: str) -> list[str]:
    cells = []
    for part in page.split(START)[1:]:
        lines = shell_as_calls(part).splitlines()
        while lines and not parses("\n".join(lines)):
            lines.pop()
        cells.append("\n".join(lines).strip())
    return [cell for cell in cells if cell]


def without_uses_of_the_device(cells: list[str]) -> list[str]:
    """For a spawn: no cell may open a device; the call in a comment is made."""
    kept = []
    for cell in cells:
        body = ast.parse(cell).body
        opens = any("xla_device()" in ast.unparse(node) for node in body if not isinstance(node, ast.FunctionDef))
        if not opens and not re.fullmatch(r"run\(\)", cell):
            kept.append(re.sub(r"^#(xmp\.spawn\()", r"\1", cell, flags=re.MULTILINE))
    return kept


def make_fixtures(work: Path) -> None:
    import pandas as pd
    import torch
    import transformers

    folder = work / "bert-base-uncased"
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    torch.manual_seed(0)
    # The page unpacks what the model returns: a tuple, which was the default of transformers 3.
    config = transformers.BertConfig(num_hidden_layers=2, intermediate_size=256, vocab_size=len(vocabulary),
                                     return_dict=False)
    transformers.BertModel(config).save_pretrained(folder)
    chance = random.Random(0)
    texts = [" ".join(chance.choice(WORDS) for _ in range(chance.randint(4, 12))) for _ in range(ROWS)]
    toxic = [int(any(word in TOXIC for word in text.split()[:3])) for text in texts]
    pd.DataFrame({"comment_text": texts, "toxic": toxic}).to_csv(work / "comments.csv", index=False)


def read_input_from(work: Path) -> None:
    """pandas.read_csv of a file in /kaggle/input reads the fixture."""
    import pandas as pd

    read = pd.read_csv
    pd.read_csv = lambda path, *rest, **named: read(
        work / "comments.csv" if str(path).startswith(INPUT) else path, *rest, **named)


def shrink(names: dict[str, Any]) -> None:
    """After a cell: values that a small run has."""
    config = names.get("config")
    if config is not None:
        config.MAX_LEN = 16
    for name, rows in (("train_df", 384), ("train_tar", 384), ("valid_df", 128), ("valid_tar", 128)):
        if name in names:
            names[name] = names[name][:rows]


def main() -> None:
    """Prints each cell, then what it prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--mode", choices=("single", "spawn"), default="single")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--work", type=Path)
    options = parser.parse_args()
    cells = cells_of(options.page.read_text(encoding="utf-8"))
    if options.mode == "spawn":
        cells = without_uses_of_the_device(cells)
    with tempfile.TemporaryDirectory() as folder:
        work = (options.work or Path(folder)).resolve()
        make_fixtures(work)
        read_input_from(work)
        os.chdir(work)
        # Functions of the cells are found by name in a process that a spawn makes.
        names = vars(sys.modules["__main__"])
        names["shell"] = lambda command: print(f"(not run in a shell: {command})")
        with printed(work / "printed.txt"):
            for number, cell in enumerate(cells):
                print(f"-- cell {number}: {cell.splitlines()[0]} ...", flush=True)
                exec(compile(cell, f"<cell {number}>", "exec"), names)
                if options.small:
                    shrink(names)
        check_scores((work / "printed.txt").read_text(encoding="utf-8"), CORES if options.mode == "spawn" else 1)
        check_model(work / "model.bin", names)
    print(f"{len(cells)} passed, 0 failed")


@contextlib.contextmanager
def printed(path: Path) -> Iterator[None]:
    """What this process and its children print goes to the file, and at the end to standard output."""
    kept = os.dup(1)
    try:
        with path.open("wb") as output:
            os.dup2(output.fileno(), 1)
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        print(path.read_text(encoding="utf-8"), flush=True)


def check_scores(text: str, replicas: int) -> None:
    """Each replica prints its score after each epoch."""
    scores = re.findall(r"^AUC_SCORE = (\S+)$", text, re.MULTILINE)
    if not scores or len(scores) % replicas != 0 or not all(0 <= float(score) <= 1 for score in scores):
        raise SystemExit(f"notebook: expected scores of {replicas} replicas, found {scores}")


def check_model(path: Path, names: dict[str, Any]) -> None:
    """What the page has saved is a model of torch on the CPU."""
    import torch

    model = names["BERTBaseUncased"]()
    model.load_state_dict(torch.load(path))
    outputs = model.eval()(torch.full((2, 8), 104), torch.ones(2, 8, dtype=torch.long))
    if not torch.isfinite(outputs).all():
        raise SystemExit("notebook: the saved model computes no finite numbers")


if __name__ == "__main__":
    main()
