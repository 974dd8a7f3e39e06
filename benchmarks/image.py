"""Runs the steps of the Dockerfile without a container engine: in an empty environment and folder, then as its user.

    python benchmarks/image.py [--model DIR] [--python python3.11]

FROM becomes a virtual environment of Python 3.11, paths are moved below a temporary folder, and `useradd` is only
recorded. COPY takes what .dockerignore lets through. Then the ENTRYPOINT serves a model (by default a small student)
on a free port of loopback, as the image's user where this script may change users; HEALTHCHECK must succeed, a text
must be classified, and SIGTERM must end the server with exit code 0.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

from startup import student

ROOT = Path(__file__).parent.parent
MOVED = ("/app", "/model")  # folders of the image
START_SECONDS = 120
KNOWN = ("FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT")


class Step(NamedTuple):
    """An instruction of a Dockerfile and its arguments."""

    name: str
    arguments: str

    @property
    def words(self) -> list[str]:
        """The arguments, of the form ["a", "b"] or of the form a b."""
        exec_form = self.arguments.find("[")
        return json.loads(self.arguments[exec_form:]) if exec_form >= 0 else shlex.split(self.arguments)


def steps_of(dockerfile: str) -> list[Step]:
    """The instructions of a Dockerfile."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [Step(*line.split(maxsplit=1)) for line in joined.splitlines()]


class Image:
    """The files of an image below a folder, and what its steps have set."""

    def __init__(self, root: Path, python: str) -> None:
        self.root = root
        self.python = python
        self.workdir = root
        self.user: int | None = None
        self.port: str | None = None
        self.home = root / "home"
        self.home.mkdir()
        self.environment = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        self.environment |= {"PATH": f"{root / 'python/bin'}:/usr/bin:/bin", "HOME": str(self.home)}

    def path(self, path: str) -> Path:
        """A path of the image, here."""
        return self.root / path.lstrip("/") if path.startswith("/") else self.workdir / path

    def build(self, step: Step) -> None:
        """Does what a step of the build does."""
        match step.name:
            case "FROM":
                version = re.fullmatch(r"python:(3\.\d+)-slim", step.arguments)
                assert version, f"FROM {step.arguments} is no slim image of Python"
                found = subprocess.run([self.python, "-V"], check=True, capture_output=True, text=True).stdout
                assert found.startswith(f"Python {version[1]}."), f"{self.python} is {found.strip()}; see --python"
                subprocess.run([self.python, "-m", "venv", str(self.root / "python")], check=True)
                recorder = self.root / "python/bin/useradd"
                recorder.write_text(f'#!/bin/sh\necho "$@" > {shlex.quote(str(self.root / "users"))}\n')
                recorder.chmod(0o755)
            case "ENV":
                self.environment |= dict(word.split("=", 1) for word in step.words)
            case "WORKDIR":
                self.workdir = self.path(step.arguments)
                self.workdir.mkdir(parents=True)
            case "COPY":
                *sources, target = step.words
                for source in sources:
                    copy(source, self.path(target))
            case "RUN":
                subprocess.run(["/bin/sh", "-c", step.arguments], check=True, cwd=self.workdir, env=self.environment)
            case "USER":
                self.user = int(step.arguments)
                created = (self.root / "users").read_text()
                assert f"--uid {self.user}" in created, f"USER {self.user} is not the user of: useradd {created}"
                if os.geteuid() == 0:
                    os.chown(self.home, self.user, self.user)
            case "EXPOSE":
                self.port = step.arguments

    def command(self, words: list[str], port: int) -> list[str]:
        """A command of the image, on a free port of loopback, as its user if this process may become it."""
        moved = [str(self.path(word)) if word in MOVED else word for word in words]
        local = [re.sub(rf"\b{self.port}\b", str(port), word).replace("0.0.0.0", "127.0.0.1") for word in moved]
        local[0] = str(self.root / "python/bin" / local[0])
        become = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--no-new-privs"]
        return [*(become if os.geteuid() == 0 else []), *local]


def copy(source: str, target: Path) -> None:
    """COPY of a file or folder, without what .dockerignore leaves out."""
    rules = (ROOT / ".dockerignore").read_text().split()
    assert f"!{source}" in rules, f".dockerignore leaves out {source}"
    if (ROOT / source).is_dir():
        shutil.copytree(ROOT / source, target, ignore=lambda folder, names: [
            name for name in names if any(fnmatch.fnmatch(name, rule.removeprefix("**/")) for rule in rules
                                          if rule.startswith("**/"))])
    else:
        shutil.copy(ROOT / source, target)


def smoke(image: Image, steps: dict[str, Step], model: Path) -> None:
    """Starts the server, waits for its health check, classifies a text, and stops it."""
    shutil.copytree(model, image.path("/model"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    health = image.command(steps["HEALTHCHECK"].words, port)
    before = set(image.root.rglob("*"))
    process = subprocess.Popen(image.command(steps["ENTRYPOINT"].words, port), cwd=image.workdir, env=image.environment)
    try:
        end = time.monotonic() + START_SECONDS
        while subprocess.run(health, env=image.environment, cwd=image.workdir, stderr=subprocess.DEVNULL).returncode:
            assert process.poll() is None and time.monotonic() < end, "the server does not answer"
            time.sleep(0.5)
        users = re.findall(r"Uid:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
        request = urllib.request.Request(f"http://127.0.0.1:{port}/predict", b'{"inputs": "The screen is black"}',
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            label = json.load(answer)[0]["label"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, "the server did not stop properly"
    finally:
        process.kill()
    written = [path for path in image.root.rglob("*") if path not in before and image.home not in path.parents]
    assert not written, f"the server wrote {written}"
    print(f"served as user {users[0]}: healthy, answered '{label}', stopped with exit code 0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--python", default="python3.11")
    options = parser.parse_args()
    steps = steps_of((ROOT / "Dockerfile").read_text())
    assert all(step.name in KNOWN for step in steps), "the Dockerfile has a step that this script does not know"
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        root.chmod(0o755)
        (root / "image").mkdir()
        image = Image(root / "image", options.python)
        for step in steps:
            print(step.name, step.arguments, flush=True)
            image.build(step)
        smoke(image, {step.name: step for step in steps}, options.model or student(root))


if __name__ == "__main__":
    main()
