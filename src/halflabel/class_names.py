"""Class names: what labels mean in words, from a file, a mapping or the labels themselves, and their vectors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halflabel.data.corpus import Label, TextLabel
from halflabel.data.labels import Classes, names_in
from halflabel.errors import DataError, SettingError
from halflabel.notices import Notice

if TYPE_CHECKING:
    from halflabel.encoders.text_encoder import TextEncoder

LABELS = "labels"  # in place of names: the labels themselves
NONE = "none"  # in place of names: none, not even labels that read as words
TEMPLATES = ("{}", "This text is about {}.", "A text about {}.", "Topic: {}.", "It is about {}, and nothing else.")
SEPARATORS = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")
WORD = re.compile(r"(?=.*[aeiouyAEIOUYÀ-ɏ])[^\W\d_]{3,}")

Names = dict[str, list[str]]  # phrases for each label, by the label as a string


def read_names(file: Path) -> Names:
    """Names from a JSON file: {"billing": "invoices and refunds", "bug": ["error", "crash"]}."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{file} does not exist; check the path") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not valid JSON ({str(error).splitlines()[0]}); give an object with a name for each "
                        "label") from None
    return parse_names(content, str(file))


def parse_names(content: Any, source: str = "names") -> Names:
    """A mapping from labels to a phrase or several, validated."""
    if not isinstance(content, Mapping):
        raise DataError(f"{source} is not a mapping from labels to names; write "
                        '{"label": "what it means in words", ...}')
    names = {str(label).strip(): [phrases] if isinstance(phrases, str) else phrases
             for label, phrases in content.items()}
    owners: dict[str, str] = {}
    for label, phrases in names.items():
        if not isinstance(phrases, Sequence) or not phrases or not all(
                isinstance(phrase, str) and phrase.strip() for phrase in phrases):
            raise DataError(f"{source}: the name of {label!r} is empty or not a text; give a phrase, or a list of them")
        for phrase in phrases:
            if owners.setdefault(phrase.strip().casefold(), label) != label:
                raise DataError(f"{source}: {owners[phrase.strip().casefold()]!r} and {label!r} have the same name "
                                f"{phrase!r}; give each label a name of its own")
    return {label: [phrase.strip() for phrase in phrases] for label, phrases in names.items()}


def words_of_label(label: Label) -> str | None:
    """A label as words, "card_declined" as "card declined"; None if it does not read as words, such as "tag07"."""
    words = [word for word in SEPARATORS.split(str(label)) if word]
    return " ".join(words) if words and all(WORD.fullmatch(word) or word.lower() in SHORT for word in words) else None


SHORT = frozenset("a an and at by for in is it my of on or to up we".split())


def classes_with_names(labels: Sequence[TextLabel], names: Names) -> tuple[Classes, list[Notice]]:
    """The classes of labels and names together; a notice about those that only have a name."""
    several = any(isinstance(label, tuple) for label in labels)
    known = {str(name): name for label in labels for name in names_in(label)}
    new = [label for label in names if label not in known]
    if new and not all(isinstance(label, str) for label in known.values()):
        raise SettingError(f"there is a name for {new[0]!r}, which no labelled text has; known labels are "
                           f"{', '.join(list(known)[:10])}")
    notices = [Notice(f"no labelled text has the label {', '.join(map(repr, new[:10]))}; only class names tell what it "
                      "means")] if new and known else []
    return Classes.of([*labels, *((name,) if several else name for name in new)]), notices


def check_named(classes: Classes, names: Names) -> None:
    """Refuses a name for a class that fixed columns do not have."""
    known = [str(label) for label in classes.names]
    if new := [label for label in names if label not in known]:
        raise SettingError(f"there is a name for {new[0]!r}, which no column of the label matrix is; its columns are "
                           f"{', '.join(known[:10])}")


def choose_names(option: Any, labels: Sequence[TextLabel], source: str = "names") -> tuple[Names, list[Notice]]:
    """The names that an option asks for: a mapping, "labels" for the labels themselves, "none" or None for no names."""
    if option in (None, NONE):
        return {}, []
    if option != LABELS:
        return parse_names(option, source), []
    opaque = [name for label in labels for name in names_in(label) if words_of_label(name) is None]
    return names_of_labels(labels), [Notice(f"the label {name!r} does not read as words, so labels are not used as "
                                            "class names") for name in opaque[:1]]


def names_of_labels(labels: Sequence[TextLabel]) -> Names:
    """The labels themselves as names; empty if one of them does not read as words."""
    names = {str(name): words_of_label(name) for label in labels for name in names_in(label)}
    return {label: [words] for label, words in names.items() if words} if all(names.values()) else {}


def phrases_for(classes: Classes, names: Names) -> list[list[str]]:
    """The phrases of each class, in the order of the columns; a class without a name has its label."""
    return [names.get(str(label), [words_of_label(label) or str(label)]) for label in classes.names]


def name_vectors(encoder: TextEncoder, phrases: Sequence[Sequence[str]]) -> np.ndarray:
    """Unit vectors of the classes, (K, H): the mean over phrases and templates."""
    import torch

    from halflabel.encoders.inference import encode

    texts = [template.format(phrase) for some in phrases for phrase in some for template in TEMPLATES]
    x = encode(encoder, texts, dtype=torch.float32).astype(np.float64)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    starts = np.cumsum([0, *(len(some) * len(TEMPLATES) for some in phrases)])
    means = np.stack([x[a:b].mean(axis=0) for a, b in pairwise(starts)])
    return means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
