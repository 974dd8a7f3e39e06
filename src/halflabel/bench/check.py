"""Whether runs can be done at all: asked before anything is queued, so that mistakes are said once and at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from halflabel.bench.runs import Run
from halflabel.bench.sets import drawn, parts_of
from halflabel.errors import BadInput


def check(runs: Sequence[Run], data: Path | None) -> list[str]:
    """Notices about the corpora; refuses what no run could use: a missing corpus, too few texts, a wrong setting."""
    from halflabel.bench.execute import make_classifier

    notices: dict[str, None] = {}
    for name in dict.fromkeys(run.set for run in runs):
        parts = parts_of(name, data)
        notices |= dict.fromkeys(parts.notices)
        mine = [run for run in runs if run.set == name]
        for run in {(one.method, one.plan, one.settings): one for one in mine}.values():
            try:
                make_classifier(run).chosen_settings(parts.test.task)
            except BadInput as error:
                raise BadInput(f"{run.method} on {name}: {error}") from None
        for run in {(one.labelled, one.per_class, one.unlabelled, one.protocol): one for one in mine}.values():
            drawn(run, parts)
    return list(notices)
