"""Encoding many texts: batches, workers, bf16 with its check, frozen layers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    DistilBertConfig,
    DistilBertModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
)

from cli_runner import Forked
from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.encoders import inference
from halflabel.encoders.encoder import Encoder, for_inference
from halflabel.encoders.inference import encode, encode_tokens, texts_at_once
from halflabel.encoders.inputs import TokenInputs
from halflabel.encoders.loading import load_encoder
from halflabel.encoders.text_encoder import BagOfWords
from halflabel.encoders.tokens import Batch, batches, padded_width, run_workers, windows, worker_count
from halflabel.errors import HalflabelError, SettingError
from halflabel.fitting import freeze, number_of_frozen
from halflabel.plans import plan_named

LENGTHS = np.random.default_rng(0).integers(2, 60, 300)


def ids() -> list[np.ndarray]:
    return [np.full(n, i, dtype=np.int32) for i, n in enumerate(LENGTHS)]


def test_every_text_is_in_one_batch_within_the_limit() -> None:
    found = list(batches([(0, ids())], padding=-1, limit=256))
    assert sorted(np.concatenate([batch.rows for batch in found]).tolist()) == list(range(300))
    assert all(batch.ids.size <= 256 for batch in found)
    for batch in found:
        assert np.array_equal(batch.mask.sum(axis=1), LENGTHS[batch.rows])
        assert np.array_equal(batch.ids == -1, batch.mask == 0)


def test_little_of_a_batch_is_padding() -> None:
    found = list(batches([(0, ids())], padding=0))
    unsorted = sum(int(LENGTHS[i : i + 32].max()) * 32 for i in range(0, 300, 32))
    assert sum(batch.ids.size for batch in found) < 1.25 * LENGTHS.sum() < 0.8 * unsorted


def test_the_number_of_texts_in_a_batch_is_limited_too() -> None:
    found = list(batches([(0, ids())], padding=0, texts=7))
    assert max(len(batch.rows) for batch in found) == 7 and sum(len(batch.rows) for batch in found) == 300


def test_a_text_beyond_the_limit_has_its_own_batch() -> None:
    found = list(batches([(0, [np.ones(50, np.int32)] * 2)], padding=0, limit=10))
    assert [len(batch.rows) for batch in found] == [1, 1]


@pytest.mark.parametrize(("longest", "limit", "width"), [(1, 64, 8), (8, 64, 8), (9, 64, 16), (30, 30, 30), (0, 64, 1)])
def test_widths_are_multiples_of_eight_within_the_limit(longest: int, limit: int, width: int) -> None:
    assert padded_width(longest, limit) == width


def test_windows_keep_the_order_and_are_tokenised_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.encoders.tokens.WINDOW", 3)
    asked: list[int] = []

    def tokenise(texts: list[str]) -> list[np.ndarray]:
        asked.append(len(texts))
        return [np.array([int(text)]) for text in texts]

    found = [(start, [int(one[0]) for one in tokens]) for start, tokens in windows(tokenise, list("01234567"))]
    assert found == [(0, [0, 1, 2]), (3, [3, 4, 5]), (6, [6, 7])] and sum(asked) == 8


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_do_all_the_work_once(workers: int) -> None:
    rows: list[int] = []
    seen: list[tuple[int, int]] = []
    run_workers(lambda batch: rows.extend(batch.rows), batches([(0, ids())], padding=0, limit=64),
          workers=workers, total=300, progress=lambda done, total: seen.append((done, total)))
    assert sorted(rows) == list(range(300)) and seen[-1] == (300, 300) and seen == sorted(seen)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_stops_all_workers_and_is_raised(error: type[BaseException]) -> None:
    begun = threading.active_count()
    done: list[int] = []

    def work(batch: Batch) -> None:
        done.append(len(batch.rows))
        if len(done) == 5:
            raise error("stop")

    with pytest.raises(error):
        run_workers(work, batches([(0, ids())], padding=0, limit=64), workers=3, total=300)
    assert len(done) < 20 and threading.active_count() == begun


def test_small_jobs_have_one_worker_and_cores_are_not_exceeded() -> None:
    assert [worker_count(4, n) for n in (0, 1, 31, 32, 1000)] == [1, 1, 1, 2, 4]
    assert worker_count(64, 10_000) == 8


def test_several_workers_give_the_same_vectors_and_leave_threads_alone(tiny_encoder: str,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, texts = load_encoder(tiny_encoder), tiny_texts(40)[0]
    one = encode(encoder, texts)
    monkeypatch.setattr(inference, "worker_count", lambda cores, texts: 3)
    assert np.array_equal(encode(encoder, texts), one) and torch.get_num_threads() == 1
    assert np.array_equal(encode_tokens(encoder, encoder.tokens(texts)), one)
    assert encode(encoder, []).shape == (0, 32)


def test_bf16_is_close_to_fp32_and_checked(tiny_encoder: str) -> None:
    encoder, texts = load_encoder(tiny_encoder), tiny_texts(40)[0]
    exact = encode(encoder, texts, dtype=torch.float32)
    half = encode(encoder, texts, dtype=torch.bfloat16)
    cosine = (exact * half).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(half, axis=1)
    assert cosine.min() > 0.999 and not np.array_equal(exact, half)
    plain = encoder.eval()(*(torch.from_numpy(x) for x in next(batches(
        [(0, encoder.tokens(texts[:4]))], padding=0))[1:]))
    order = np.argsort([-len(one) for one in encoder.tokens(texts[:4])], kind="stable")
    assert np.allclose(exact[:4][order], plain.detach().numpy(), atol=1e-5)


MANY_SHAPES = """
import sys
from pathlib import Path

import torch

from halflabel.encoders.encoder import for_inference
from halflabel.encoders.loading import load_encoder


def megabytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) // 1024


encoder, sizes = for_inference(load_encoder(sys.argv[1]), torch.bfloat16), []
for texts in range(1, 33):
    with torch.inference_mode():
        for width in range(4, 16):
            ids = torch.ones(texts, width, dtype=torch.long)
            encoder(ids, ids)
    sizes.append(megabytes())
print(*sizes)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc")
def test_memory_does_not_grow_with_the_shapes_of_batches(tiny_encoder: str) -> None:
    done = Forked(tiny_encoder, code=MANY_SHAPES).wait()
    assert done.code == 0, done.err
    sizes = [int(size) for size in done.out.split()]
    assert len(sizes) == 32 and sizes[-1] - sizes[7] < 60, sizes  # of 288 shapes, 2 MB each if they were kept


def test_harmful_bf16_is_not_used_and_gives_a_warning(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.encoders.encoder.bf16_products", lambda device: True)
    monkeypatch.setattr("halflabel.encoders.encoder.HARMLESS", 1.1)
    encoder, texts = load_encoder(tiny_encoder), tiny_texts(20)[0]
    with pytest.warns(UserWarning, match="fp32"):
        found = encode(encoder, texts)
    assert np.array_equal(found, encode(encoder, texts, dtype=torch.float32))


def test_copies_follow_the_weights_and_fp32_shares_them(tiny_encoder: str) -> None:
    encoder, texts = load_encoder(tiny_encoder), tiny_texts(20)[0]
    before = encode(encoder, texts, dtype=torch.bfloat16)
    assert for_inference(encoder, torch.bfloat16) is for_inference(encoder, torch.bfloat16)
    twin = for_inference(encoder, torch.float32)
    assert {p.data_ptr() for p in twin.parameters()} == {p.data_ptr() for p in encoder.parameters()}
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(1.5)
    assert np.abs(encode(encoder, texts, dtype=torch.bfloat16) - before).max() > 0.01


def test_groups_of_a_training_step_change_nothing_but_rounding(tiny_encoder: str) -> None:
    encoder = load_encoder(tiny_encoder)
    freeze(encoder, plan_named("laptop"))
    source = TokenInputs(encoder, [tiny_texts(9)[0]])
    inputs = source(np.arange(27), np.zeros(27, dtype=int))
    together, grouped = encoder.eval()(*inputs), encoder.train()(*inputs)
    assert torch.allclose(together, grouped, atol=1e-5)


def test_training_steps_cut_long_texts_and_evaluation_does_not(tiny_encoder: str, tmp_path: Path) -> None:
    encoder = load_encoder(tiny_encoder)
    texts, rows, views = ["one two three four five six seven", "one two"], np.arange(2), np.zeros(2, dtype=int)
    whole, cut = TokenInputs(encoder, [texts]), TokenInputs(encoder, [texts], limit=5)
    ids = whole.tokens[0]
    assert len(ids[0]) > 5 >= len(ids[1])
    step = cut(rows, views, np.random.default_rng(0))
    assert step[0][0, :5].tolist() == [*ids[0][:4], ids[0][-1]] and step[1][0].sum() == 5
    assert step[0][1, : len(ids[1])].tolist() == ids[1].tolist()
    assert all(torch.equal(a, b) for a, b in zip(cut(rows, views), whole(rows, views), strict=True))
    assert np.array_equal(cut.encoded(rows, encoder), whole.encoded(rows, encoder))


def test_training_leaves_frozen_layers_unchanged(tiny_encoder: str, tmp_path: Path) -> None:
    texts, labels = tiny_texts(5)
    settings = {"epochs": 1, "epoch_steps": 6, "warmup": 2, "frozen_layers": 1, "token_drop": 0.1}
    clf = TextClassifier("bdd-s", tiny_encoder, settings=settings).fit(texts, labels, tiny_texts(8, seed=1)[0])
    before, after = load_encoder(tiny_encoder).state_dict(), clf.model_.encoder.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(".layer.1." in name for name in changed)
    clf.save(tmp_path / "model")
    again = TextClassifier.load(tmp_path / "model")
    assert np.allclose(again.predict_proba(texts), clf.predict_proba(texts), atol=1e-3)


def test_half_of_the_layers_are_frozen(tiny_encoder: str) -> None:
    encoder = load_encoder(tiny_encoder)
    freeze(encoder, plan_named("laptop", frozen_layers=0.5))
    assert [any(p.requires_grad for p in layer.parameters()) for layer in encoder.layers] == [False, True]
    assert not any(p.requires_grad for p in encoder.body.embeddings.parameters())


@pytest.mark.parametrize("body", [
    DistilBertModel(DistilBertConfig(vocab_size=9, dim=8, hidden_dim=8, n_heads=2, n_layers=2)),
    ModernBertModel(ModernBertConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_attention_heads=2,
                                     num_hidden_layers=2, pad_token_id=0)),
    MPNetModel(MPNetConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_attention_heads=2,
                           num_hidden_layers=2))], ids=["distilbert", "modernbert", "mpnet"])
def test_layers_of_other_encoders_are_found(body: Any) -> None:
    encoder = Encoder(body, None)
    freeze(encoder, plan_named("laptop", frozen_layers=1))
    encoder(torch.tensor([[2, 3, 4]]), torch.ones(1, 3, dtype=torch.int64)).sum().backward()
    assert [any(p.grad is not None for p in layer.parameters()) for layer in encoder.layers] == [False, True]


def test_a_share_of_unknown_layers_is_none_of_them() -> None:
    assert number_of_frozen(0.5, 0) == 0 and number_of_frozen(0.5, 7) == 3 and number_of_frozen(3, 4) == 3
    with pytest.raises(SettingError, match="cannot be told apart"):
        number_of_frozen(1, 0)


def test_freezing_every_layer_is_refused(tiny_encoder: str) -> None:
    with pytest.raises(HalflabelError, match="2 layers"):
        freeze(load_encoder(tiny_encoder), plan_named("laptop", frozen_layers=2))
    with pytest.raises(SettingError, match=r"frozen_layers=1\.5 is out of range; give a whole number"):
        plan_named("laptop", frozen_layers=1.5)


@pytest.mark.parametrize(("method", "plan", "words"), [
    ("metaexpert", "laptop", "whole encoder"), ("vat", "laptop", "whole encoder"),
    ("vampire", "laptop", "bags of words"), ("bdd-s", "frozen", "the plan frozen")])
def test_frozen_layers_are_refused_where_they_make_no_sense(method: str, plan: str, words: str,
                                                            tiny_encoder: str) -> None:
    texts, labels = tiny_texts(3)
    with pytest.raises(HalflabelError, match=f"frozen_layers=1 .*{words}"):
        TextClassifier(method, tiny_encoder, plan, settings={"frozen_layers": 1}).fit(texts, labels)


def test_copies_keep_the_depths(tiny_encoder: str) -> None:
    encoder, texts = load_encoder(tiny_encoder, depths=2), tiny_texts(20)[0]
    exact, half = (encode(encoder, texts, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    inputs = TokenInputs(encoder, [texts])(np.arange(60), np.zeros(60, dtype=int))
    assert exact.shape == half.shape == (60, 64) and np.allclose(exact, half, atol=0.1)
    assert np.allclose(exact, encoder.eval()(*inputs).detach().numpy(), atol=1e-5)


def test_bags_of_words_are_the_same_by_texts_and_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.encoders.tokens.WINDOW", 25)
    texts = [*tiny_texts(20)[0], ""]
    bag = BagOfWords.fit(texts, 50, tf_idf=True)
    seen: list[tuple[int, int]] = []
    whole, rows = encode(bag, texts, lambda done, total: seen.append((done, total))), np.array([60, 3, 59, 0])
    assert np.allclose(whole, bag.matrix(texts).toarray(), atol=1e-5) and not whole[60].any() and whole[0].any()
    assert np.array_equal(TokenInputs(bag, [texts]).encoded(rows, bag), whole[rows])
    assert seen[-1] == (61, 61) and seen == sorted(seen) and encode(bag, []).shape == (0, bag.width)


def test_few_wide_vectors_are_in_memory_at_a_time() -> None:
    assert [texts_at_once(width, 4096) for width in (1, 384, 2**14, 2**24, 2**26)] == [4096, 4096, 1024, 1, 1]


def test_compile_without_a_compiler_is_refused(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.encoders.encoder.shutil.which", lambda name: None)
    with pytest.raises(SettingError, match="compiler"):
        encode(load_encoder(tiny_encoder), ["goal"], backend="compile")


def test_consistent_vectors_do_not_depend_on_the_size_of_the_job(tiny_encoder: str) -> None:
    encoder = load_encoder(tiny_encoder)
    many = encode(encoder, ["goal match win"] * (inference.SMALL + 1), consistent=True)
    assert np.allclose(encode(encoder, ["goal match win"], consistent=True)[0], many[0], atol=1e-3)
