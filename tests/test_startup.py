"""What a newcomer waits for, in processor time, so that a busy machine does not count."""

from __future__ import annotations

import subprocess
import sys

REPEATS = 3


def seconds(code: str) -> float:
    """Least processor time that the code says it took, over a few processes."""
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            for _ in range(REPEATS)]
    return min(float(done.stdout.splitlines()[-1]) for done in runs)


def test_import_takes_less_than_a_tenth_of_a_second() -> None:
    code = "import time; t = time.process_time(); import halflabel; print(time.process_time() - t)"
    assert seconds(code) < 0.1


def test_help_takes_less_than_three_tenths() -> None:
    code = ("import sys, time; sys.argv = ['halflabel', '--help']\n"
            "from halflabel.cli import main\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            "assert not {'torch', 'transformers', 'onnxruntime', 'pyarrow'} & set(sys.modules)\n"
            "print(time.process_time())")
    assert seconds(code) < 0.3
