"""Notices: what the user should know about data or a run, without being an error."""

from __future__ import annotations


class Notice(str):
    """A sentence, and at which step of training it became true, if at any."""

    message: str
    step: int | None

    def __new__(cls, message: str, step: int | None = None) -> Notice:
        self = super().__new__(cls, message if step is None else f"step {step}: {message}")
        self.message, self.step = message, step
        return self

    def __getnewargs__(self) -> tuple[str, int | None]:  # type: ignore[override]
        return self.message, self.step


class NoticeWarning(UserWarning):
    """A notice from a place that cannot report events: a Python warning, which the command prints as a notice."""


class Dropped(Notice):
    """Texts that were left out of a corpus, such as "2 empty texts in a.csv were left out"."""

    warning: str  # the same before it has happened

    def __new__(cls, message: str, warning: str) -> Dropped:
        self = super().__new__(cls, message)
        assert isinstance(self, Dropped)
        self.warning = warning
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.message, self.warning


def dropped(count: int, what: str, source: str, why: str = "") -> list[Notice]:
    """A notice about texts that were left out; none if there are none."""
    if not count:
        return []
    subject, because = f"{count} {what}{'s' * (count > 1)} in {source}", f" because {why}" if why else ""
    return [Dropped(f"{subject} {'were' if count > 1 else 'was'} left out{because}",
                    f"{subject} would be left out{because}")]
