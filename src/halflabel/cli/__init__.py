"""The command line: one file for each command."""

from halflabel.cli.app import main

__all__ = ["main"]
