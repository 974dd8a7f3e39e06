"""A model card with the metadata block of the Hugging Face hub, and pushing a model there."""

from __future__ import annotations

from pathlib import Path

from halflabel.errors import ModelError, OutputError
from halflabel.integrity import CHECKSUMS
from halflabel.output_folders import MODEL
from halflabel.report.facts import ReportFacts

BASE_MODELS = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}
MAX_CLASSES = 30  # that a card lists
MESSAGE = "Upload a halflabel model"
REMEDY = "check the network, the name of the repository and the token (`hf auth login`, or HF_TOKEN)"


def model_card(facts: ReportFacts) -> str:
    """The card as Markdown."""
    from huggingface_hub import EvalResult, ModelCardData

    model = facts.model
    encoder = str(model.facts.get("encoder", ""))
    base = BASE_MODELS.get(encoder, encoder if not Path(encoder).exists() and encoder.count("/") <= 1 else None)
    results = None
    if facts.evaluation is not None and facts.evaluation.texts:
        figures, source = facts.evaluation.figures, Path(facts.evaluation.source).name
        results = [EvalResult(task_type="text-classification", dataset_type="text", dataset_name=source,
                              metric_type=kind, metric_value=round(figures[key], 4), metric_name=name)
                   for kind, key, name in (("accuracy", "accuracy", "Accuracy"), ("f1", "macro_f1", "Macro F1"))]
    data = ModelCardData(library_name="halflabel", pipeline_tag="text-classification", base_model=base or None,
                         tags=["halflabel", "text-classification", "semi-supervised"],
                         model_name=facts.name if results else None, eval_results=results)
    return f"---\n{data.to_yaml()}\n---\n\n{body(facts)}"


def body(facts: ReportFacts) -> str:
    """The card without its metadata."""
    model = facts.model
    names = [str(name) for name in model.classes.names]
    listed = ", ".join(f"`{name}`" for name in names[:MAX_CLASSES])
    more = f" and {len(names) - MAX_CLASSES} more" if len(names) > MAX_CLASSES else ""
    several = "several labels" if model.task == "multi-label" else "one label"
    use = ("from halflabel import TextClassifier\n\n"
           f'classifier = TextClassifier.load("{facts.name}")  # the downloaded folder\nclassifier.predict(["a text"])')
    lines = [f"# {facts.name}",
             f"A text classifier that gives {several} out of {len(names)} to a text: {listed}{more}.",
             "## Use", f"```python\n{use}\n```",
             "## Training", f"Trained by halflabel {facts.version} with the method `{model.method}` on "
             f"{model.shape.labelled:,} labelled and {model.shape.unlabelled:,} unlabelled texts, on the encoder "
             f"`{Path(str(model.facts.get('encoder', 'unknown'))).name}`.", "## Accuracy", measured(facts)]
    if facts.evaluation is not None:
        rows = "\n".join(f"| {name.replace('|', chr(92) + '|')} | {row['n']} | {row['precision']:.3f} | "
                         f"{row['recall']:.3f} | {row['f1']:.3f} |"
                         for name, row in list(facts.evaluation.figures["per_label"].items())[:MAX_CLASSES])
        lines.append("| class | texts | precision | recall | F1 |\n|---|---:|---:|---:|---:|\n" + rows)
    notices = model.facts.get("run", {}).get("notices", [])
    lines += ["## Limits", "The model knows its classes only, and texts like those that it was trained on. "
              "`predict --unknown` leaves texts without a label that are far from all classes."
              if model.unknown is not None else "The model knows its classes only, and texts like those that it was "
              "trained on.", *(f"- {notice}" for notice in notices)]
    return "\n\n".join(lines) + "\n"


def measured(facts: ReportFacts) -> str:
    """One sentence on how good the model is."""
    if facts.several is not None:
        return f"Micro F1 {facts.several['micro_f1']:.3f} on {Path(facts.several['source']).name}."
    if facts.accuracy is None or facts.interval is None:
        return "Not measured: no text with a known label was held out."
    correct, n, source = facts.accuracy
    low, high = facts.interval
    name = Path(source).name if facts.evaluation is not None and facts.evaluation.texts else source
    error = "" if facts.evaluation is None else (
        f" The expected calibration error is {facts.evaluation.figures['calibration_error']:.3f}.")
    return f"Accuracy {correct / n:.1%} (95% interval {low:.1%} to {high:.1%}) on {n:,} texts: {name}.{error}"


def push(folder: Path, repo: str, card: str, *, private: bool = False) -> str:
    """Uploads a finished model with its card as one commit, and returns its address.

    Only the files of the model go: neither logs nor the hashes of training texts.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if not (folder / CHECKSUMS).is_file():
        raise ModelError(f"{folder} is not a finished model (no {CHECKSUMS}); let the training end first.")
    files = [file for path in MODEL.ours(folder) for file in ([path] if path.is_file() else sorted(path.rglob("*")))
             if file.is_file()]
    operations = [CommitOperationAdd(file.relative_to(folder).as_posix(), str(file))
                  for file in (*files, folder / CHECKSUMS)]
    operations.append(CommitOperationAdd("README.md", card.encode()))
    api = HfApi()
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        return str(api.create_commit(repo, operations, commit_message=MESSAGE).commit_url)
    except (HfHubHTTPError, HFValidationError, OSError, RuntimeError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise OutputError(f"{repo} could not be pushed ({why[:200]}); {REMEDY}.") from error
