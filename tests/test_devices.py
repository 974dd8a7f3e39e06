"""Every tensor of training and prediction follows the device: on a fake one here, and on a GPU where there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from cli_runner import FAST, runner, write_csv
from conftest import tiny_texts
from fake_device import fake_device
from halflabel import TextClassifier
from halflabel.devices import Compute, choose_compute, few_blas_threads
from halflabel.encoders.inference import encode
from halflabel.encoders.loading import load_encoder
from halflabel.errors import SettingError
from halflabel.methods import find
from halflabel.notices import Event, Notice, NoticeWarning, StepProgress, silent
from halflabel.processes import Interrupted, request_stop
from halflabel.training.objective import Objective

SHORT = {"epochs": 2, "epoch_steps": 3, "warmup": 2, "labelled_batch": 4, "unlabelled_batch": 8,
         "head_rate": 1e-4}  # at a higher one bdd-f abandons the pool
POOL, _ = tiny_texts(8, seed=1)
TEXTS, TOPICS = tiny_texts(4)


def classifier(method: str, encoder: str, plan: str, device: str = "auto", precision: str = "fp32") -> TextClassifier:
    return TextClassifier(method, encoder, plan, settings=SHORT, device=device, precision=precision)


def fitted(clf: TextClassifier, **arguments: Any) -> TextClassifier:
    several = find(str(clf.method)).task == "multi-label"
    labels = [(topic, "long") if i % 3 == 0 else (topic,) for i, topic in enumerate(TOPICS)] if several else TOPICS
    return clf.fit(TEXTS, labels, unlabelled=POOL, **arguments)


def on_device(clf: TextClassifier) -> set[str]:
    return {tensor.device.type for tensor in clf.model_.network.state_dict().values()}  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def on_cpu(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """Probabilities of bdd-f after fine-tuning on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALFLABEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return fitted(classifier("bdd-f", tiny_encoder, "laptop", "cpu")).predict_proba(POOL)


def test_the_fake_device_refuses_tensors_of_the_cpu() -> None:
    with fake_device() as device:
        x = torch.ones(3, device=device)
        with pytest.raises(RuntimeError, match="met a tensor of the CPU"):
            x + torch.ones(3)
        with pytest.raises(RuntimeError, match="met a tensor of the CPU"):
            torch.ones(3) * x.sum()
        assert (x + torch.tensor(1.0))[torch.tensor([0, 2])].cpu().tolist() == [2.0, 2.0]


def test_fine_tuning_on_a_device_gives_the_numbers_of_the_cpu(on_cpu: np.ndarray, tiny_encoder: str) -> None:
    with fake_device() as device:
        clf = fitted(classifier("bdd-f", tiny_encoder, "laptop"))
        assert on_device(clf) == {device.type} and clf.termination_condition_ == "all steps done"
        np.testing.assert_allclose(clf.predict_proba(POOL), on_cpu, atol=1e-4)
    assert clf.model_.facts["compute"] == {"device": "fake:0", "precision": "fp32", "processes": 1}


# Each has parts that no other has: tables and words, low rank, adversarial noise, phases, bags of words, thresholds.
@pytest.mark.parametrize("method", ["lift", "bdd-ml", "vat", "sdrl", "vampire", "flexmatch", "metaexpert"])
def test_the_parts_of_methods_follow(method: str, tiny_encoder: str) -> None:
    with fake_device() as device:
        clf = fitted(classifier(method, tiny_encoder, "laptop" if method == "lift" else "frozen"))
        assert on_device(clf) == {device.type} and np.isfinite(clf.predict_proba(POOL)).all()


def test_a_checkpoint_of_one_device_resumes_on_another(on_cpu: np.ndarray, tiny_encoder: str, tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, StepProgress) and event.step == 4:
            request_stop()

    with fake_device(), pytest.raises(Interrupted):
        fitted(classifier("bdd-f", tiny_encoder, "laptop"), folder=tmp_path / "run", report=stop)
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-00000004"]
    resumed = fitted(classifier("bdd-f", tiny_encoder, "laptop", "cpu"), folder=tmp_path / "run", resume=True)
    np.testing.assert_allclose(resumed.predict_proba(POOL), on_cpu, atol=1e-4)
    assert resumed.model_.facts["compute"]["device"] == "cpu"
    with fake_device():
        np.testing.assert_allclose(TextClassifier.load(tmp_path / "run", precision="fp32").predict_proba(POOL), on_cpu,
                                   atol=1e-4)


def test_batches_that_do_not_fit_are_halved(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, sizes = Objective.self_training_step, list[int]()

    def small_memory(self: Any, problem: Any, batch: Any, weight: float) -> Any:
        if len(batch.unlabelled) > limit:
            self.pseudo_labels.confidence.fill_(0.123)
            raise torch.OutOfMemoryError
        assert abs(float(self.pseudo_labels.confidence) - 0.123) > 1e-3
        sizes.append(len(batch.unlabelled))
        return whole(self, problem, batch, weight)

    monkeypatch.setattr(Objective, "self_training_step", small_memory)
    limit, events = 3, list[Event]()
    with fake_device():
        clf = fitted(classifier("bdd-f", tiny_encoder, "frozen"), report=events.append)
    notice = "step 2: out of memory; the batches are halved, to 1 labelled and 2 unlabelled texts"
    assert notice in clf.notices_ and notice in [event for event in events if isinstance(event, Notice)]
    assert sizes == [0, 0, *[2] * 6]
    limit = -1
    with fake_device(), pytest.raises(SettingError, match="single texts does not fit into the memory of fake:0"):
        fitted(classifier("bdd-f", tiny_encoder, "frozen"), report=silent)


def test_encoding_in_batches_that_do_not_fit(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_encoder(tiny_encoder)
    expected = encode(encoder, POOL)
    whole = type(encoder).forward

    def small_memory(self: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if len(ids) > limit:
            raise torch.OutOfMemoryError
        return whole(self, ids, mask)

    monkeypatch.setattr(type(encoder), "forward", small_memory)
    limit = 7
    with fake_device() as device:
        encoder.on(Compute(device, torch.float32))
        with pytest.warns(NoticeWarning, match="fake:0 is out of memory; encoding in batches of .* tokens"):
            np.testing.assert_allclose(encode(encoder, POOL), expected, atol=1e-5)
        limit = 0
        with pytest.warns(NoticeWarning), pytest.raises(SettingError, match="does not fit into the memory"):
            encode(encoder, POOL)


def test_fp16_trains_with_scaled_gradients(tiny_encoder: str, tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, StepProgress) and event.step == 4:
            request_stop()

    with fake_device():
        with pytest.raises(Interrupted):
            fitted(classifier("ce", tiny_encoder, "laptop", precision="fp16"), folder=tmp_path / "run", report=stop)
        state = (tmp_path / "run/checkpoint-00000004/state.json").read_text()
        assert '"scale": 65536.0' in state and '"_growth_tracker": 4' in state
        clf = fitted(classifier("ce", tiny_encoder, "laptop", precision="fp16"), folder=tmp_path / "run", resume=True)
        assert np.isfinite(clf.predict_proba(POOL)).all() and clf.model_.facts["compute"]["precision"] == "fp16"


@pytest.mark.parametrize(("device", "precision", "message"), [
    ("gpu", "auto", "there is no device 'gpu'; choose auto, cpu, cuda"),
    ("meta", "auto", "the device meta:0 is not there: torch reports the CPU and 1 of type fake"),
    ("fake:3", "auto", "the device fake:3 is not there"),
    ("cpu", "fp16", "the CPU trains and predicts in bf16 or fp32"),
    ("fake", "bf16", "the device fake:0 has no products in bf16; choose the precision fp16 or fp32"),
    ("cpu", "int8", "there is no precision 'int8'; choose one of auto, bf16, fp16, fp32"),
])
def test_a_device_or_precision_that_is_not_there(device: str, precision: str, message: str) -> None:
    with fake_device(), pytest.raises(SettingError, match=message):
        choose_compute(device, precision)


def test_the_commands_choose_a_device_and_name_it(tiny_encoder: str, tmp_path: Path, capsys: Any,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    run = runner(capsys, monkeypatch)
    write_csv(tmp_path / "labelled.csv", TEXTS, TOPICS)
    command = ("train", tmp_path / "labelled.csv", "--method", "ce", "--encoder", tiny_encoder, *FAST, "--out",
               tmp_path / "model")
    with fake_device():
        done = run(*command, "--precision", "fp32")
        assert done.code == 0 and "fake:0 in fp32" in done.out
        assert run("predict", tmp_path / "model", tmp_path / "labelled.csv", "--device", "fake").code == 0
    told = run("info", tmp_path / "model", "--json").out
    assert '"device": "fake:0"' in told and '"precision": "fp32"' in told
    for words in (("evaluate", tmp_path / "model", tmp_path / "labelled.csv", "--device", "fake"),
                  (*command, "--force", "--device", "fake:9")):
        refused = run(*words)
        assert refused.code == 2 and refused.lines == 1 and "is not there: torch reports" in refused.err
    assert (tmp_path / "model/model.safetensors").is_file()


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_gpu_gives_about_the_numbers_of_the_cpu(precision: str, on_cpu: np.ndarray, tiny_encoder: str) -> None:
    if not torch.accelerator.is_available():
        pytest.skip("torch reports no GPU")
    clf = fitted(classifier("bdd-f", tiny_encoder, "laptop", precision=precision))
    assert "cpu" not in on_device(clf)
    np.testing.assert_allclose(clf.predict_proba(POOL), on_cpu, atol=0.01)


@pytest.mark.parametrize(("torch_threads", "blas_threads", "expected"), [(4, 4, 2), (4, 1, 1), (1, 4, 1), (8, 2, 2)])
def test_linear_algebra_leaves_half_of_the_cores_to_others(torch_threads: int, blas_threads: int,
                                                           expected: int) -> None:
    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    before = torch.get_num_threads()
    torch.set_num_threads(torch_threads)
    try:
        with threadpool_limits(blas_threads, user_api="blas"):
            with few_blas_threads():
                assert threads() == {expected}
            assert threads() == {blas_threads}
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("given", [None, "7"])
def test_threads_wait_for_a_short_time_unless_the_user_says_otherwise(given: str | None) -> None:
    code = "import os, halflabel; print(os.environ['GOMP_SPINCOUNT'])"
    env = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    done = subprocess.run([sys.executable, "-c", code], env=env | ({"GOMP_SPINCOUNT": given} if given else {}),
                          capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (given or "1000")
