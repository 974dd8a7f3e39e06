"""A run: one method on one sample of one corpus, identified by its content. A method may be an ablation by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from halflabel.errors import SettingError
from halflabel.plans import CHOICES

PLANS = ("frozen", "laptop", "paper")
PROTOCOLS = ("dev", "none")
RunSettings = tuple[tuple[str, float | str], ...]


@dataclass(frozen=True)
class Run:
    """One cell of a grid under one seed."""

    set: str  # name of a corpus: "sample", one of the paper's, or a path
    method: str  # registry name or an ablation such as "bdd-f -unlabelled"
    plan: str  # frozen | laptop | paper
    labelled: int  # labelled texts: per class if `per_class`, else in total
    per_class: bool
    unlabelled: int
    seed: int
    protocol: str  # "dev" (best epoch on a dev set, as in the papers) | "none" (last epoch)
    settings: RunSettings = ()  # changes to the plan or to hyper-parameters
    encoder: str | None = None

    @property
    def key(self) -> str:
        """Short content hash, the name of the run's folder."""
        content = json.dumps(self.to_json(), sort_keys=True, ensure_ascii=True).encode("ascii")
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    @property
    def label_budget(self) -> str:
        """The number of labelled texts as `--labelled` takes it: 25/class or 100."""
        return f"{self.labelled}/class" if self.per_class else str(self.labelled)

    def to_json(self) -> dict[str, Any]:
        """The fields; settings as an object with 1 for 1.0, so that neither order nor spelling changes the key."""
        settings = {name: value if isinstance(value, str) or value != value // 1 else int(value)
                    for name, value in self.settings}
        return asdict(self) | {"settings": settings}

    @property
    def changes(self) -> str:
        """The settings as `--set` takes them."""
        return " ".join(f"{name}={value}" if isinstance(value, str) else f"{name}={value:g}"
                        for name, value in self.settings)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Run:
        """A run as `to_json` or a person wrote it, validated."""
        known = [f.name for f in fields(cls)]
        if unknown := [name for name in content if name not in known]:
            raise SettingError(f"a run has no field '{unknown[0]}'; it has {', '.join(known)}")
        required = [name for name in known if name not in ("settings", "encoder")]
        if missing := [name for name in required if name not in content]:
            raise SettingError(f"a run lacks the field '{missing[0]}'; it needs {', '.join(required)}")
        settings = content.get("settings") or {}
        pairs = settings.items() if isinstance(settings, Mapping) else settings
        return validate(cls(**{**content, "settings": tuple(sorted((str(k), v) for k, v in pairs))}))


def validate(run: Run) -> Run:
    """The run itself; an error if a field is out of range."""
    if run.plan not in PLANS:
        raise SettingError(f"unknown plan {run.plan!r}; choose one of {', '.join(PLANS)}")
    if run.protocol not in PROTOCOLS:
        raise SettingError(f"unknown protocol {run.protocol!r}; choose one of {', '.join(PROTOCOLS)}")
    for name, minimum in (("labelled", 1), ("unlabelled", 0), ("seed", 0)):
        value = getattr(run, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise SettingError(f"{name}={value!r} is out of range; give a whole number from {minimum}")
    if bad := [name for name, value in run.settings
               if isinstance(value, bool) or not isinstance(value, str if name in CHOICES else int | float)]:
        wanted = "one of " + ", ".join(CHOICES[bad[0]]) if bad[0] in CHOICES else "a number"
        raise SettingError(f"the setting '{bad[0]}' is not {wanted}; give {wanted}")
    return run


class AblationFamily(NamedTuple):
    """What replaces a method when a part of it is removed (Table 8)."""

    without_bdd: str  # the same method with unbalanced angles
    penalty: str  # the hyper-parameter that weighs its regularisation
    without_all: str  # labelled texts and nothing else
    without_all_changes: dict[str, float]
    supervised: str  # the usual loss on labelled texts, which the claims compare with


# Multi-class "-all" is BERT+CE: its row in Table 8 is that of Table 2. The multi-label row is not a row of another
# table; we take what is left of the method: the angular loss on labelled texts, without penalty and averaged weights.
FAMILIES = {
    "bdd-s": AblationFamily("am-s", "lambda2", "ce", {}, "ce"),
    "bdd-f": AblationFamily("am-f", "lambda2", "ce", {}, "ce"),
    "bdd-ml": AblationFamily("am-ml", "lambda3", "am-ml", {"lambda3": 0.0, "ema": 0.0}, "bce"),
}
REMOVABLE = ("-regularization", "-bdd", "-unlabelled", "-all")


class MethodSpec(NamedTuple):
    """A registered method and the settings to change in it or in its plan."""

    method: str
    changes: dict[str, float]


def resolve(method: str) -> MethodSpec:
    """The registered method behind a name such as "bdd-f -bdd"; a registered name stands for itself."""
    name, *parts = method.split()
    if not parts:
        return MethodSpec(name, {})
    if name not in FAMILIES:
        raise SettingError(f"there is no ablation of '{name}'; there are ablations of {', '.join(FAMILIES)}")
    if unknown := [part for part in parts if part not in REMOVABLE]:
        raise SettingError(f"'{unknown[0]}' is not an ablation of {name}; choose one of {', '.join(REMOVABLE)}")
    family = FAMILIES[name]
    if "-all" in parts:
        return MethodSpec(family.without_all, dict(family.without_all_changes))
    return MethodSpec(family.without_bdd if "-bdd" in parts else name,
                      {family.penalty: 0.0} if "-regularization" in parts else {})


def without_pool(method: str) -> bool:
    """Whether an ablation removes the unlabelled texts."""
    return not {"-unlabelled", "-all"}.isdisjoint(method.split()[1:])
