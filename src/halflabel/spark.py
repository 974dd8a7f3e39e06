"""Scoring by Spark: `predict_udf` for a column of texts, `predict` for files into shards that a killed job resumes.

Executors need halflabel and the model folder under the same path, such as a shared drive.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from halflabel.cli.folders import open_model
from halflabel.errors import MissingExtra
from halflabel.scoring.shards import ModelSource, Options, Task, job_of, opened, run, tasks, unfinished

BATCH = 8192  # texts that the UDF scores at a time


def predict_udf(model: str | Path, *, decision: str | None = None, backend: str | None = None,
                batch_size: int = BATCH) -> Any:
    """A function of a column of texts, for `DataFrame.withColumn`: a struct of label and score.

    For several labels per text it is a struct of labels and scores, the most probable first.
    """
    from halflabel.scoring.predictions import decision_rule

    _require_spark()
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql import types

    source = ModelSource(open_model, Path(os.path.abspath(model)), backend)
    loaded = opened(source)
    several = decision_rule(loaded, decision) is not None
    numbers = all(type(name) is int for name in loaded.classes.names)
    label: Any = types.LongType() if numbers else types.StringType()
    fields = ([("labels", types.ArrayType(label)), ("scores", types.ArrayType(types.DoubleType()))] if several
              else [("label", label), ("score", types.DoubleType())])
    schema = types.StructType([types.StructField(name, kind) for name, kind in fields])
    convert: Callable[[Any], Any] = int if numbers else str
    return predict_batch_udf(partial(_predictor, source, decision, convert), return_type=schema, batch_size=batch_size)


def _predictor(source: ModelSource, decision: str | None, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What an executor calls with batches of texts."""
    from halflabel.scoring.predictions import decision_rule, predicted_rows

    model = opened(source)
    rule = decision_rule(model, decision)

    def predict(texts: Any) -> list[dict[str, Any]]:
        given = [{"text": text if isinstance(text, str) else ""} for text in texts]  # null is None or NaN
        rows = predicted_rows(model, given, rule, everything=False)
        if rule is None:
            return [{"label": convert(row["label"]), "score": row["score"]} for row in rows]
        return [{"labels": [convert(name) for name in row["labels"]], "scores": row["scores"]} for row in rows]

    return predict


def predict(spark: Any, model: str | Path, inputs: str | Path | Sequence[str | Path], out: str | Path, *,
            resume: bool = False, backend: str | None = None, notify: Callable[[str], None] = warnings.warn,
            **options: Any) -> int:
    """Scores files into the folder `out`, as `halflabel predict --out` does; returns the number of texts.

    `options` are the fields of `scoring.shards.Options`, such as format and rows. A job that was killed goes on with
    `resume=True`.
    """
    from halflabel.data.readers.files import as_files
    from halflabel.scoring.shards import attempt, shards_of

    _require_spark()
    files = as_files([inputs] if isinstance(inputs, (str, Path)) else inputs)
    job = job_of(ModelSource(open_model, Path(model), backend), files, str(out), Options(backend=backend, **options))

    def engine(job: Any) -> Iterator[Any]:
        left = unfinished(job, work)
        if left:
            for outcome in spark.sparkContext.parallelize(left, len(left)).map(partial(attempt, job)).collect():
                yield from shards_of(outcome)

    with job.out.locked():
        work: list[Task] = tasks(job)
        shards = run(job, engine, resume=resume, notify=notify)
    return sum(shard.rows for shard in shards)


def _require_spark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise MissingExtra("pyspark is not installed; pip install 'halflabel[spark]'") from None
