"""Token ids and vectors of stored texts are those of the texts, kept and never torn; training sees no difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel import fitting as training
from halflabel.data.columns import TextColumn
from halflabel.data.pool import open_pool
from halflabel.data.sequences import concat, subset
from halflabel.encoders import shards as stored
from halflabel.encoders.inference import encode
from halflabel.encoders.inputs import TokenInputs, VectorInputs, cached_token_ids, lengths
from halflabel.encoders.loading import load_encoder
from halflabel.encoders.vector_cache import VectorCache

POOL = tiny_texts(12, seed=1)[0]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TextColumn:
    monkeypatch.setattr(stored.shards, "__defaults__", (8, None))
    monkeypatch.setattr("halflabel.encoders.vector_cache.SHARD", 8)
    # one text at a time: the last bits of a vector depend on who is encoded beside it
    monkeypatch.setattr("halflabel.encoders.inference.TOKENS", 1)
    (tmp_path / "pool.txt").write_text("\n".join(POOL))
    found = open_pool([tmp_path / "pool.txt"])[0].texts
    assert isinstance(found, TextColumn)
    return found


def test_token_ids(texts: TextColumn, tiny_encoder: str, tmp_path: Path) -> None:
    encoder = load_encoder(tiny_encoder)
    ids = cached_token_ids(encoder, concat(["goal"], subset(texts, [3, 30])), tmp_path / "tokens")
    expected = encoder.tokens(["goal", POOL[3], POOL[30]])
    assert [one.tolist() for one in ids] == [one.tolist() for one in expected]
    assert lengths(ids).tolist() == list(map(len, expected))
    assert len(list((tmp_path / "tokens").rglob("*.arrow"))) == 5
    shorter = load_encoder(tiny_encoder, 8)
    assert max(map(len, cached_token_ids(shorter, texts, tmp_path / "tokens"))) == 8


@pytest.mark.parametrize(("most", "kind"), [(0, np.int8), (127, np.int8), (128, np.int16), (40_000, np.int32)])
def test_counts_take_few_bytes(most: int, kind: type) -> None:
    counts = stored.small(np.array([most, 0]))
    assert counts.tolist() == [most, 0] and (-counts).tolist() == [-most, 0] and counts.dtype == kind


def test_few_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.data.columns.MAX_OPEN_FILES", 3)
    ids = stored.TokenIds(stored.shards(tmp_path, [str(i) for i in range(40)], lambda some: stored.ragged(
        [np.arange(int(text), dtype=np.int32) for text in some]), 4))
    order = np.random.default_rng(0).permutation(40).tolist()
    assert all(ids[i].tolist() == list(range(i)) for i in order) and ids.lengths().tolist() == list(range(40))
    assert ids.opened.cache_info().currsize == 3 and len(ids.files) == 10


def test_vectors_are_computed_once_and_a_kill_costs_one_shard(texts: TextColumn, tiny_encoder: str, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_encoder(tiny_encoder)
    calls: list[int] = []

    def counted(encoder: object, some: list[str], progress: object = None, *, alike: bool) -> np.ndarray:
        calls.append(len(some))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(encoder, some, alike=alike)  # type: ignore[arg-type]

    monkeypatch.setattr("halflabel.encoders.vector_cache.encode", counted)
    with pytest.raises(KeyboardInterrupt):
        VectorCache(tmp_path / "v", encoder).rows(texts)
    assert [path for path in (tmp_path / "v").rglob(".*") if path.is_file()] == []
    found = VectorCache(tmp_path / "v", encoder).rows(texts)
    assert calls == [8, 8, 8, 8, 8, 4]
    np.testing.assert_allclose(np.stack(list(found)), encode(encoder, POOL), atol=1e-5)


def test_sources_serve_the_same_from_memory_and_from_disk(texts: TextColumn, tiny_encoder: str, tmp_path: Path) -> None:
    encoder = load_encoder(tiny_encoder)
    rows, views = np.array([5, 0, 30]), np.array([0, 0, 0])
    memory, disk = TokenInputs(encoder, [POOL]), TokenInputs(encoder, [texts], folder=tmp_path / "tokens")
    assert all(torch.equal(a, b) for a, b in zip(memory(rows, views), disk(rows, views), strict=True))
    array = encode(encoder, POOL)
    kept = VectorCache(tmp_path / "v", encoder).rows(texts)
    torch.testing.assert_close(VectorInputs([array])(rows, views)[0], VectorInputs([kept])(rows, views)[0])


@pytest.mark.parametrize(("method", "plan"), [("bdd-f", "laptop"), ("bdd-s", "frozen"), ("lift", "laptop")])
def test_training_sees_no_difference(texts: TextColumn, tiny_encoder: str, method: str, plan: str,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halflabel.training.collapse.LEFT", 0.0)  # eight steps on random weights may collapse: not asked here
    labelled, labels = tiny_texts(4)
    X, y = [*labelled, POOL[0], "a text of nobody"], [*labels, None, None]
    settings = {"epochs": 2, "epoch_steps": 4}
    fits = [TextClassifier(method, tiny_encoder, plan, settings=settings, minutes=60).fit(X, y, unlabelled=pool)
            for pool in (POOL, texts)]
    weights = [dict(clf.model_.network.state_dict()) for clf in fits]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert fits[0].transduction_.tolist() == fits[1].transduction_.tolist()
    assert fits[0].labeled_iter_.tolist() == fits[1].labeled_iter_.tolist()
    assert len(fits[0].transduction_) == len(X) + len(POOL) and (fits[0].labeled_iter_ > 0).any()


def test_a_closed_form_start_takes_part_of_a_large_pool(texts: TextColumn, tiny_encoder: str,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "BOUND", 10)
    labelled, labels = tiny_texts(4)
    clf = TextClassifier("lift", tiny_encoder, "laptop", settings={"epochs": 2, "epoch_steps": 8}, minutes=60)
    clf.fit(labelled, labels, unlabelled=texts)
    assert clf.model_.shape.unlabelled == 10
    assert 0 < (clf.labeled_iter_[len(labelled) :] >= 0).sum() <= 10
    assert len(clf.transduction_) == len(labelled) + len(POOL)
    again = TextClassifier("lift", tiny_encoder, "laptop", settings={"epochs": 2, "epoch_steps": 8}, minutes=60)
    again.fit(labelled, labels, unlabelled=POOL)
    assert again.labeled_iter_.tolist() == clf.labeled_iter_.tolist()
