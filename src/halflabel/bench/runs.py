"""A run: one method on one draw of one corpus. It is known by its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from halflabel.errors import BadInput

PLANS = ("frozen", "laptop", "paper")
PROTOCOLS = ("dev", "none")


@dataclass(frozen=True)
class Run:
    """One cell of a grid under one seed."""

    set: str  # name of a corpus: "sample", one of the six, or a user's path
    method: str  # registry name or an ablation such as "bdd-f -unlabelled"
    plan: str  # frozen | laptop | paper
    labelled: int  # labelled texts: per class if `per_class`, else in all
    per_class: bool
    unlabelled: int
    seed: int
    protocol: str  # "dev" (best epoch on a dev set, as in the papers) | "none" (as users live)
    settings: tuple[tuple[str, float], ...] = ()  # per-dataset changes of plan or method
    encoder: str | None = None

    @property
    def key(self) -> str:
        """Short content hash, used as the name of the run's folder."""
        content = json.dumps(self.to_json(), sort_keys=True, ensure_ascii=True).encode("ascii")
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The fields; settings as an object with 1 for 1.0, so that neither order nor spelling matters."""
        whole = {name: int(value) if value == value // 1 else value for name, value in self.settings}
        return asdict(self) | {"settings": whole}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Run:
        """What `to_json` gave, or what a person wrote; anything else is refused."""
        kinds = {f.name: f.type for f in fields(cls)}
        if unknown := [name for name in given if name not in kinds]:
            raise BadInput(f"a run has no field '{unknown[0]}'; it has {', '.join(kinds)}")
        needed = [f.name for f in fields(cls) if f.name not in ("settings", "encoder")]
        if missing := [name for name in needed if name not in given]:
            raise BadInput(f"a run lacks the field '{missing[0]}'; it needs {', '.join(needed)}")
        settings = given.get("settings") or {}
        pairs = settings.items() if isinstance(settings, Mapping) else settings
        return checked(cls(**{**given, "settings": tuple(sorted((str(k), v) for k, v in pairs))}))


def checked(run: Run) -> Run:
    """The run, if its fields can be meant."""
    if run.plan not in PLANS:
        raise BadInput(f"plan {run.plan!r} is not known; choose one of {', '.join(PLANS)}")
    if run.protocol not in PROTOCOLS:
        raise BadInput(f"protocol {run.protocol!r} is not known; choose one of {', '.join(PROTOCOLS)}")
    for name, least in (("labelled", 1), ("unlabelled", 0), ("seed", 0)):
        value = getattr(run, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise BadInput(f"{name}={value!r} is out of range; give a whole number from {least}")
    if bad := [key for key, value in run.settings if isinstance(value, bool) or not isinstance(value, int | float)]:
        raise BadInput(f"the setting '{bad[0]}' is no number; give one")
    return run
