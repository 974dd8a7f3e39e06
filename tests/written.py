"""Texts that are hard to preserve, and files of them, written by other libraries than ours."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
MARKS = ['"', '""', "'", "\n", "\r\n", "\r", ",", ";", "\t", "|", "\\", "\u2028", "\x00", "\ufeff", "😀"]
NASTY = st.sampled_from(MARKS)
TEXTS = st.lists(st.one_of(UNICODE, st.lists(NASTY, max_size=5).map("".join)), min_size=1, max_size=8)
SLOW = [HealthCheck.too_slow]
SETTINGS = settings(max_examples=40, deadline=None, database=None, suppress_health_check=SLOW)
NAMES = st.sampled_from(["spam", "ham", "Ümlaut, ja", 'say "no"', "01", "true", "a;b", "[x"])


def write(folder: str | Path, suffix: str, columns: dict[str, list]) -> Path:
    path = Path(folder) / f"data{suffix}"
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif suffix == ".json":
        path.write_text(json.dumps(rows, indent=1, ensure_ascii=False), encoding="utf-8")
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return path
