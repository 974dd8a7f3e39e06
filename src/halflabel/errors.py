"""Exceptions: each message is one sentence that names the file, row or value, and the remedy.

    HalflabelError
    ├── DataError            texts, labels or files that cannot be used
    ├── SettingError         an option or hyper-parameter that is unknown or out of range
    │   └── WrongTask        a method for the other kind of labels
    ├── ModelError           a model folder that is missing, damaged, of a newer version, or unfit for what was asked
    ├── EncoderError         an encoder that cannot be loaded
    ├── OutputError          an output that exists, is in use, is an input, or cannot be written
    └── MissingExtra         an optional dependency that is not installed

On the command line each of them ends with exit code 2.
"""

from __future__ import annotations


class HalflabelError(ValueError):
    """Something that the user can fix."""


class DataError(HalflabelError):
    """Texts, labels or files that cannot be used."""


class SettingError(HalflabelError):
    """An option or hyper-parameter that is unknown or out of range."""


class WrongTask(SettingError):
    """A method that is not for this kind of labels."""


class ModelError(HalflabelError):
    """A model folder that is missing, damaged, of a newer version, or unfit for what was asked."""


class EncoderError(HalflabelError):
    """An encoder that cannot be loaded."""


class OutputError(HalflabelError):
    """An output that exists, is in use, is an input, or cannot be written."""


class MissingExtra(HalflabelError):
    """An optional dependency that is not installed."""


BadInput = HalflabelError  # the name of the root before it had subclasses
