"""Damaged, changed or malicious folders: refused with one sentence, and no code in them is executed."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cli_runner import FAST, Done, Ran, forked, runner, write_csv
from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.errors import EncoderError, HalflabelError, ModelError
from halflabel.integrity import CHECKSUMS, refuse_code, verify
from halflabel.persistence.model import RunFinished, TrainedModel, load
from halflabel.persistence.onnx_export import export
from halflabel.persistence.onnx_model import OnnxModel

TEXTS = tiny_texts(3, seed=5)[0]
SETTINGS = {"epochs": 1, "epoch_steps": 4, "warmup": 4}
KINDS = ("bert", "distilbert", "words", "tags", "onnx")
Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def distilbert(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder of an architecture that transformers restores."""
    from transformers import DistilBertConfig, DistilBertModel

    folder = tmp_path_factory.mktemp("encoders") / "distilbert"
    shutil.copytree(tiny_encoder, folder)
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    torch.manual_seed(0)
    DistilBertModel(DistilBertConfig(vocab_size=size, dim=32, n_layers=2, n_heads=2, hidden_dim=64,
                                     max_position_embeddings=64)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def models(tiny_encoder: str, exported_model: Path, distilbert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one small model of each kind."""
    texts, labels = tiny_texts(4)
    folder = tmp_path_factory.mktemp("models")

    def learnt(method: str, encoder: str | None, y: list[Any]) -> TextClassifier:
        settings = SETTINGS if method != "nb-em" else None
        return TextClassifier(method, encoder, "frozen", settings=settings).fit(texts, y, tiny_texts(4, seed=1)[0])

    shutil.copytree(exported_model / "model", folder / "bert")
    shutil.copytree(exported_model / "onnx", folder / "onnx")
    learnt("ce", str(distilbert), labels).save(folder / "distilbert")
    learnt("nb-em", None, labels).save(folder / "words")
    learnt("bdd-ml", tiny_encoder, [(label,) for label in labels]).save(folder / "tags")
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


def opened(folder: Path) -> TrainedModel | OnnxModel:
    return OnnxModel(folder) if (folder / "export.json").exists() or (folder / "model.onnx").exists() else load(folder)


def files(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def delete(file: Path) -> None:
    file.unlink()


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("kind", KINDS)
def test_an_intact_folder_is_verified_and_predicts(kind: str, models: Path, run: Ran) -> None:
    assert verify(models / kind) and len(opened(models / kind).probabilities(TEXTS)) == len(TEXTS)
    assert json.loads(run("info", models / kind, "--json").out)["checksums"] == "verified"
    recorded = json.loads((models / kind / CHECKSUMS).read_text())["sha256"]
    assert sorted([*recorded, CHECKSUMS]) == files(models / kind)


@pytest.mark.parametrize("damage", [delete, halve, flip])
@pytest.mark.parametrize("kind", KINDS)
def test_every_damage_to_every_file_is_named(kind: str, damage: Damage, models: Path, tmp_path: Path) -> None:
    for name in files(models / kind):
        if damage is delete and name == CHECKSUMS:
            continue
        folder = tmp_path / name.replace("/", "-")
        shutil.copytree(models / kind, folder)
        damage(folder / name)
        with pytest.raises(HalflabelError, match=str(folder)) as refused:
            opened(folder)
        message = str(refused.value)
        assert "\n" not in message and any(remedy in message for remedy in ("again", "name a folder", "--resume"))


@pytest.mark.parametrize("damage", [delete, halve])
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_without_checksums_is_validated_by_its_contents(
        kind: str, damage: Damage, models: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(models / kind, whole)
    (whole / CHECKSUMS).unlink()
    assert not verify(whole) and len(opened(whole).probabilities(TEXTS)) == len(TEXTS)
    for name in files(whole):
        if damage is delete and name in ("decision.json", "unknown.safetensors", "encoder/tokenizer_config.json"):
            continue  # an unfinished run has no decision, an older model no class means; a tokenizer needs no settings
        folder = tmp_path / name.replace("/", "-")
        shutil.copytree(whole, folder)
        damage(folder / name)
        with pytest.raises(HalflabelError, match=str(folder)):
            opened(folder)


def change(name: str, **entries: Any) -> Damage:
    """Changes entries of a JSON file; ... takes one out."""
    def damage(folder: Path) -> None:
        found = json.loads((folder / name).read_text()) | entries
        (folder / name).write_text(json.dumps({key: value for key, value in found.items() if value is not ...}))
    return damage


def shape(**entries: Any) -> Damage:
    def damage(folder: Path) -> None:
        found = json.loads((folder / "config.json").read_text())["shape"] | entries
        change("config.json", shape=found)(folder)
    return damage


def weights(name: str, value: float) -> Damage:
    """Puts a value into the first tensor of a file."""
    def damage(folder: Path) -> None:
        tensors = load_file(folder / name)
        tensors = {key: tensor.clone() for key, tensor in tensors.items()}
        next(tensor for tensor in tensors.values() if tensor.is_floating_point()).view(-1)[0] = value
        save_file(tensors, folder / name)
    return damage


def written(name: str, content: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).write_text(content)
    return damage


def cut_decision(**entries: Any) -> Damage:
    def damage(folder: Path) -> None:
        found = json.loads((folder / "decision.json").read_text())
        found["calibration"] |= entries
        (folder / "decision.json").write_text(json.dumps(found))
    return damage


CONFIG, ENCODER = "config.json", "encoder/config.json"
CHANGES: dict[str, tuple[str, Damage]] = {
    **{f"no {name}": ("bert", change(CONFIG, **{name: ...}))
       for name in ("format", "method", "settings", "classes", "shape", "frozen", "task")},
    "classes as a string": ("bert", change(CONFIG, classes="abc")),
    "no classes": ("bert", change(CONFIG, classes=[])),
    "too few classes": ("bert", change(CONFIG, classes=["food", "money"])),
    "too many classes": ("bert", change(CONFIG, classes=["a", "b", "c", "d"])),
    "the same class twice": ("bert", change(CONFIG, classes=["food", "food", "sport"])),
    "a class that is a list": ("bert", change(CONFIG, classes=["food", ["money"], "sport"])),
    "a class that is a fraction": ("bert", change(CONFIG, classes=[0.5, 1.5, 2.5])),
    "an unknown method": ("bert", change(CONFIG, method="magic")),
    "another method": ("bert", change(CONFIG, method="ce", settings={})),
    "a method of words": ("bert", change(CONFIG, method="nb-em", settings={})),
    "an unknown setting": ("bert", change(CONFIG, settings={"magic": 1})),
    "a setting out of range": ("bert", change(CONFIG, settings={"m": 99})),
    "a plan that is a word": ("bert", change(CONFIG, plan="frozen")),
    "not frozen": ("bert", change(CONFIG, frozen=False)),
    "another format": ("bert", change(CONFIG, format="one")),
    "nested brackets": ("bert", written(CONFIG, "[" * 100_000)),
    "a list for a configuration": ("bert", written(CONFIG, "[]")),
    "a shape of words": ("bert", shape(width="wide")),
    "a negative shape": ("bert", shape(unlabelled=-1)),
    "an endless pool": ("bert", shape(unlabelled=10**30)),
    "a shape with more": ("bert", shape(magic=1)),
    "a wider shape": ("bert", shape(width=10**11)),
    "more labels": ("bert", shape(labels=10**11)),
    "huge topics": ("words", change(CONFIG, method="vampire", settings={"states": 100_000, "embedding": 100_000})),
    "a word less": ("words", lambda folder: (folder / "encoder/vocabulary.json").write_text(
        json.dumps(json.loads((folder / "encoder/vocabulary.json").read_text())[:-1])) and None),
    "a word twice": ("words", lambda folder: (folder / "encoder/vocabulary.json").write_text(
        json.dumps(["bread"] * len(json.loads((folder / "encoder/vocabulary.json").read_text())))) and None),
    "no words": ("words", written("encoder/vocabulary.json", "{}")),
    "a weight that is NaN": ("bert", weights("model.safetensors", float("nan"))),
    "a weight of the encoder that is NaN": ("bert", weights("encoder.safetensors", float("nan"))),
    "an infinite weight": ("distilbert", weights("encoder.safetensors", float("inf"))),
    "a million layers": ("bert", change(ENCODER, num_hidden_layers=1_000_000)),
    "a million other layers": ("distilbert", change(ENCODER, n_layers=1_000_000)),
    "one layer less": ("bert", change(ENCODER, num_hidden_layers=1)),
    "one other layer less": ("distilbert", change(ENCODER, n_layers=1)),
    "no layers": ("bert", change(ENCODER, num_hidden_layers=-2)),
    "layers in words": ("bert", change(ENCODER, num_hidden_layers="two")),
    "heads that do not divide": ("bert", change(ENCODER, num_attention_heads=5)),
    "no heads": ("bert", change(ENCODER, num_attention_heads=0)),
    "a huge width": ("bert", change(ENCODER, hidden_size=10**9)),
    "another huge width": ("distilbert", change(ENCODER, dim=10**8, hidden_dim=10**8)),
    "a huge vocabulary": ("distilbert", change(ENCODER, vocab_size=10**10)),
    "an unknown activation": ("bert", change(ENCODER, hidden_act="magic")),
    "another unknown activation": ("distilbert", change(ENCODER, activation="magic")),
    "an unknown architecture": ("bert", change(ENCODER, model_type="magic")),
    "a padding of another kind": ("bert", change("encoder/tokenizer_config.json", pad_token=[1])),
    "texts cut in the middle": ("bert", change("encoder/tokenizer_config.json", truncation_side="middle")),
    "no tokenizer": ("distilbert", lambda folder: (folder / "encoder/tokenizer.json").unlink()),
    "an unknown pooling": ("bert", change("encoder/pooling.json", pooling="magic")),
    "no pooling": ("bert", change("encoder/pooling.json", pooling=...)),
    "no tokens": ("bert", change("encoder/pooling.json", max_tokens=0)),
    "endless tokens": ("bert", change("encoder/pooling.json", max_tokens=10**30)),
    "more depths": ("bert", change("encoder/pooling.json", depths=4)),
    "a decision on two labels": ("tags", change("decision.json", prior=[0.5, 0.5])),
    "a prior that is NaN": ("tags", change("decision.json", prior=[float("nan")] * 3)),
    "a rule without numbers": ("tags", change("decision.json", chosen="top-k", rules={
        "top-k": {"thresholds": None, "k": 0, "fitted_on": "nothing"}})),
    "no rule": ("tags", change("decision.json", rules={})),
    "rules in a list": ("tags", change("decision.json", rules=[])),
    "an unknown choice": ("tags", change("decision.json", chosen="magic")),
    "a short offset": ("tags", cut_decision(offset=[0.0])),
    "a slope that is NaN": ("tags", cut_decision(slope=float("nan"))),
    "too few exported classes": ("onnx", change("export.json", classes=["food", "money"])),
    "exported classes as a string": ("onnx", change("export.json", classes="abc")),
    "an unknown task": ("onnx", change("export.json", task="magic")),
    "an export without a length": ("onnx", change("export.json", max_tokens=0)),
    "a padding beyond the tokens": ("onnx", change("export.json", padding=10**6)),
    "a task that needs a decision": ("onnx", change("export.json", task="multi-label")),
    "a larger tokenizer": ("onnx", lambda folder: enlarge(folder / "tokenizer.json")),
    "a tokenizer larger than the embeddings": ("bert", lambda folder: enlarge(folder / "encoder/tokenizer.json")),
}


def enlarge(file: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.add_tokens([f"more{i}" for i in range(50)])
    tokenizer.save(str(file))


@pytest.mark.parametrize("case", CHANGES)
def test_changed_entries_are_refused(case: str, models: Path, tmp_path: Path, run: Ran) -> None:
    kind, damage = CHANGES[case]
    folder = tmp_path / "model"
    shutil.copytree(models / kind, folder)
    damage(folder)
    before = time.process_time()
    with_checksums = run("predict", folder, stdin="goal match\n")
    (folder / CHECKSUMS).unlink()
    without = run("predict", folder, stdin="goal match\n")
    for done in (with_checksums, without):
        assert done.code == 2 and done.out == "" and done.lines == 1 and done.err.startswith("error: "), done
    assert time.process_time() - before < 20


def test_a_file_that_was_added_is_named(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(models / "bert", folder)
    (folder / "encoder" / ".DS_Store").touch()
    (folder / "notes.txt").touch()
    assert verify(folder)
    (folder / "encoder" / "added_tokens.json").write_text("{}")
    with pytest.raises(ModelError, match="added_tokens.json was added"):
        load(folder)


def test_a_run_has_checksums_only_when_it_is_finished(tiny_encoder: str, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = tiny_texts(4)

    def fit(resume: bool) -> None:
        TextClassifier("ce", tiny_encoder, "frozen", settings=SETTINGS).fit(
            texts, labels, folder=tmp_path / "run", resume=resume)

    def killed(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("halflabel.persistence.model.write_checksums", killed)
        with pytest.raises(KeyboardInterrupt):
            fit(resume=False)
    assert not verify(tmp_path / "run") and len(load(tmp_path / "run").scores(TEXTS)) == len(TEXTS)
    with pytest.raises(RunFinished):
        fit(resume=True)  # only the checksums were missing
    assert verify(tmp_path / "run")


def test_tuning_updates_the_checksums(models: Path, tmp_path: Path, run: Ran,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    folder, (texts, labels) = tmp_path / "model", tiny_texts(3, seed=7)
    shutil.copytree(models / "tags", folder)
    rows = [json.dumps({"text": text, "labels": [label]}) for text, label in zip(texts, labels, strict=True)]
    (tmp_path / "dev.jsonl").write_text("\n".join(rows))
    assert run("tune", folder, "--dev", tmp_path / "dev.jsonl").code == 0
    assert verify(folder) and load(folder).rules.chosen == "dev-global"

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("halflabel.integrity._write", killed)
        run("tune", folder, "--dev", tmp_path / "dev.jsonl", "--decision", "top-k")
    assert not verify(folder) and load(folder).rules.chosen == "top-k"
    (folder / CHECKSUMS).write_text('{"sha256": []}')
    assert run("tune", folder, "--dev", tmp_path / "dev.jsonl").code == 2


def test_scores_that_are_not_finite_are_refused(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(models / "bert")
    with torch.no_grad():
        model.network.head.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="not finite"):
        model.probabilities(TEXTS)
    monkeypatch.setattr("halflabel.persistence.onnx_export.write_graph", lambda model, file, texts: shutil.copy(
        models / "onnx" / "model.onnx", file))  # a graph without NaN: exporting takes seconds
    with pytest.raises(ModelError, match="not.*finite"):
        export(model, tmp_path / "onnx", TEXTS)
    assert not (tmp_path / "onnx").exists()


# Attacks: folders from somebody else that would execute their own code.

MARK = "from pathlib import Path\nPath({marker!r}).touch()\n"
CLASSES = {"config": ("AutoConfig", "EvilConfig"), "model": ("AutoModel", "EvilModel"),
           "tokenizer": ("AutoTokenizer", "EvilTokenizer")}


def armed(folder: Path, marker: Path, part: str) -> None:
    """Adds code that leaves a mark when it is imported, and the entry that leads transformers to it."""
    code = MARK.format(marker=str(marker))
    code += ("from transformers import BertConfig, BertModel, PreTrainedTokenizerFast\n"
             "class EvilConfig(BertConfig):\n    model_type = 'evil'\n"
             "class EvilModel(BertModel):\n    config_class = EvilConfig\n"
             "class EvilTokenizer(PreTrainedTokenizerFast):\n    pass\n")
    (folder / "evil.py").write_text(code)
    auto, name = CLASSES[part]
    if part == "tokenizer":
        file, entries = "tokenizer_config.json", {"auto_map": {auto: [None, f"evil.{name}"]}, "tokenizer_class": name}
    else:
        file, entries = "config.json", {"model_type": "evil", "auto_map": {
            "AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel"}}
        if part == "model":
            entries["model_type"] = "distilbert"
    (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | entries))


def halflabel(*arguments: object) -> Done:
    """The command in a process of its own, with "y" for whatever it asks on standard input."""
    return forked(*arguments, stdin="y\n" * 100)


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
@pytest.mark.parametrize("part", CLASSES)
def test_a_model_cannot_run_code(part: str, kind: str, models: Path, tmp_path: Path) -> None:
    folder, marker = tmp_path / "model", tmp_path / "marker"
    shutil.copytree(models / kind, folder)
    armed(folder / "encoder", marker, part)
    (folder / CHECKSUMS).unlink()  # an attacker writes checksums that hold
    done = halflabel("predict", folder)
    assert not marker.exists() and done.code == 2 and done.out == "", done
    assert done.err.startswith("error: ") and done.lines == 1 and "code" in done.err


@pytest.mark.parametrize("part", CLASSES)
def test_an_encoder_cannot_run_code(part: str, tiny_encoder: str, tmp_path: Path) -> None:
    folder, marker = tmp_path / "encoder", tmp_path / "marker"
    shutil.copytree(tiny_encoder, folder)
    armed(folder, marker, part)
    write_csv(tmp_path / "texts.csv", *tiny_texts(3))
    done = halflabel("train", tmp_path / "texts.csv", "--encoder", folder, "--out", tmp_path / "run", "--method", "ce",
                     *FAST)
    assert not marker.exists() and done.code == 2 and not (tmp_path / "run").exists(), done
    assert done.lines == 1 and "code" in done.err


def test_the_attacks_are_real(tiny_encoder: str, tmp_path: Path) -> None:
    code = f"import transformers\ntransformers.dynamic_module_utils.HF_MODULES_CACHE = {str(tmp_path / 'modules')!r}\n"
    for part in CLASSES:
        folder = tmp_path / f"encoder-{part}"
        shutil.copytree(tiny_encoder, folder)
        armed(folder, tmp_path / f"marker-{part}", part)
        door = "AutoTokenizer" if part == "tokenizer" else "AutoModel"
        code += (f"try:\n    transformers.{door}.from_pretrained({str(folder)!r}, trust_remote_code=True)\n"
                 "except Exception as error:\n    print(error)\n")
    forked(code=code)
    assert all((tmp_path / f"marker-{part}").exists() for part in CLASSES)


@pytest.mark.parametrize("part", CLASSES)
@pytest.mark.parametrize("kept", ["code", "entry"])
def test_either_half_of_the_attack_is_refused(part: str, kept: str, models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(models / "bert", folder)
    if kept == "entry":
        armed(folder / "encoder", tmp_path / "marker", part)
        (folder / "encoder" / "evil.py").unlink()
    else:
        (folder / "encoder" / "evil.py").write_text("")
    (folder / CHECKSUMS).unlink()
    with pytest.raises(ModelError, match="code"):
        load(folder)


def test_an_unknown_tokenizer_class_changes_nothing(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(models / "distilbert", folder)
    change("encoder/tokenizer_config.json", tokenizer_class="Magic")(folder)
    (folder / CHECKSUMS).unlink()
    assert np.array_equal(load(folder).scores(TEXTS), load(models / "distilbert").scores(TEXTS))
    (folder / "encoder" / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="does not fit"):
        load(folder)


def test_code_of_translators_is_refused(tmp_path: Path) -> None:
    from halflabel.data.augmentation import _load

    pytest.importorskip("sentencepiece")
    (tmp_path / "modeling_evil.py").write_text("")
    with pytest.raises(ModelError, match="is code"):
        _load(str(tmp_path))


@pytest.mark.parametrize("target", ["../elsewhere.safetensors", "pytorch_model.bin", "/etc/passwd", ""])
def test_weights_of_an_encoder_are_in_its_folder(target: str, tiny_encoder: str, tmp_path: Path) -> None:
    from halflabel.encoders.loading import load_encoder

    folder = tmp_path / "encoder"
    shutil.copytree(tiny_encoder, folder)
    names = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, target)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="not a safetensors file in the same folder"):
        load_encoder(str(folder))


def test_pickled_weights_are_never_read(tiny_encoder: str, tmp_path: Path) -> None:
    from halflabel.encoders.loading import load_encoder

    folder, marker = tmp_path / "encoder", tmp_path / "marker"
    shutil.copytree(tiny_encoder, folder)
    (folder / "model.safetensors").unlink()
    # a pickle that calls pathlib.Path(marker).touch() when it is read
    (folder / "pytorch_model.bin").write_bytes(
        b"cpathlib\nPath.touch\n(cpathlib\nPath\n(S" + repr(str(marker)).encode() + b"\ntRtR.")
    with pytest.raises(EncoderError, match="could not be loaded"):
        load_encoder(str(folder))
    assert not marker.exists()


@pytest.mark.parametrize("damage", [
    change("config.json", num_hidden_layers=1_000_000), change("config.json", num_hidden_layers=3),
    change("config.json", hidden_act="magic"), change("config.json", hidden_size=48),
    weights("model.safetensors", float("nan")), lambda folder: halve(folder / "model.safetensors"),
    lambda folder: halve(folder / "config.json"), lambda folder: halve(folder / "tokenizer.json"),
    lambda folder: (folder / "tokenizer.json").unlink(), lambda folder: enlarge(folder / "tokenizer.json"),
], ids=["many layers", "another layer", "activation", "width", "nan", "half weights", "half configuration",
        "half tokenizer", "no tokenizer", "larger tokenizer"])
def test_a_damaged_encoder_is_refused_before_training(damage: Damage, tiny_encoder: str, tmp_path: Path) -> None:
    from halflabel.encoders.loading import load_encoder

    folder = tmp_path / "encoder"
    shutil.copytree(tiny_encoder, folder)
    damage(folder)
    with pytest.raises((EncoderError, ModelError), match=str(folder)) as refused:
        load_encoder(str(folder))
    assert "\n" not in str(refused.value)


def test_references_to_unused_code_are_not_saved(tiny_encoder: str, tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    from halflabel.encoders import loading

    folder = tmp_path / "encoder"
    shutil.copytree(tiny_encoder, folder)
    for name, auto in (("config.json", {"AutoModel": "evil.EvilModel"}),
                       ("tokenizer_config.json", {"AutoTokenizer": [None, "evil.EvilTokenizer"]})):
        change(name, auto_map=auto)(folder)
    monkeypatch.setattr(loading, "refuse_code", lambda folder: None)  # as for an encoder of the hub
    (tmp_path / "saved").mkdir()
    loading.load_encoder(str(folder)).save(tmp_path / "saved")
    assert not any("auto_map" in file.read_text() for file in (tmp_path / "saved").iterdir())


def test_a_graph_cannot_read_other_files(models: Path, tmp_path: Path) -> None:
    import onnx

    folder = tmp_path / "onnx"
    shutil.copytree(models / "onnx", folder)
    graph = onnx.load(folder / "model.onnx")
    onnx.save(graph, folder / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    (folder / CHECKSUMS).unlink()
    with pytest.raises(ModelError, match="weights in other files"):
        OnnxModel(folder)


@pytest.mark.parametrize("name", ["encoder/tokenizer.json", "encoder/config.json", "config.json", "model.safetensors",
                                  CHECKSUMS])
@pytest.mark.parametrize("instead", ["/dev/zero", "pipe", "nowhere"])
def test_only_regular_files_are_read(name: str, instead: str, models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(models / "bert", folder)
    (folder / CHECKSUMS).unlink()
    (folder / name).unlink(missing_ok=True)
    if instead == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to(instead)
    with pytest.raises(ModelError, match=str(folder)):
        load(folder)


def test_an_encoder_may_have_configuration_files_that_are_lists(tiny_encoder: str, tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(tiny_encoder, folder)
    (folder / "data_config.json").write_text('[{"name": "a corpus", "lines": 1}]')
    refuse_code(folder)
    (folder / "data_config.json").write_text('[{"auto_map": {}}]')
    with pytest.raises(ModelError, match="auto_map"):
        refuse_code(folder)
