"""The cache of token ids and vectors: computed once, never torn, and invisible to training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.atomic import cache_folder
from halflabel.cache_limit import prune
from halflabel.data.columns import TextColumn, text_hash
from halflabel.data.corpus import concat, subset
from halflabel.data.pool import open_pool
from halflabel.encoders import cache as module
from halflabel.encoders.cache import EncoderCache
from halflabel.encoders.encoder import Encoder
from halflabel.encoders.inference import encode
from halflabel.encoders.inputs import TokenInputs, VectorInputs, lengths
from halflabel.encoders.loading import load_encoder
from halflabel.encoders.text_encoder import BagOfWords

POOL = tiny_texts(12, seed=1)[0]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TextColumn:
    """A pool on disk, with shards of 8 texts."""
    monkeypatch.setattr(module, "TOKEN_SHARD", 8)
    monkeypatch.setattr(module, "VECTOR_SHARD", 8)
    # one text per batch, since the last bits of a vector depend on the other texts in its batch
    monkeypatch.setattr("halflabel.encoders.inference.TOKENS", 1)
    (tmp_path / "pool.txt").write_text("\n".join(POOL))
    column = open_pool([tmp_path / "pool.txt"])[0].texts
    assert isinstance(column, TextColumn)
    return column


class CountingEncoder(Encoder):
    """Counts the texts that it encodes."""

    count = 0

    def tokens(self, texts: list[str]) -> list[np.ndarray]:
        self.count += len(texts)
        return super().tokens(texts)


def counting(folder: str) -> CountingEncoder:
    plain = load_encoder(folder)
    return CountingEncoder(plain.body, plain.tokenizer)


class TestTokenIds:
    def test_those_of_pools_and_lists_are_those_of_the_tokenizer(self, texts: TextColumn, tiny_encoder: str,
                                                                 tmp_path: Path) -> None:
        encoder = load_encoder(tiny_encoder)
        ids = EncoderCache(tmp_path, encoder).token_ids(concat(["goal"], subset(texts, [3, 30])))
        expected = encoder.tokens(["goal", POOL[3], POOL[30]])
        assert [text.tolist() for text in ids] == [text.tolist() for text in expected]
        assert lengths(ids).tolist() == list(map(len, expected))
        assert len(list((tmp_path / "tokens").rglob("*.arrow"))) == 5

    def test_another_length_limit_has_its_own_folder(self, texts: TextColumn, tiny_encoder: str,
                                                     tmp_path: Path) -> None:
        long, short = (EncoderCache(tmp_path, load_encoder(tiny_encoder, limit)).token_ids(texts) for limit in (64, 8))
        assert max(map(len, short)) == 8 < max(map(len, long))

    @pytest.mark.parametrize(("most", "kind"), [(0, np.int8), (127, np.int8), (128, np.int16), (40_000, np.int32)])
    def test_lengths_take_few_bytes(self, most: int, kind: type) -> None:
        counts = module.compact(np.array([most, 0]))
        assert counts.tolist() == [most, 0] and (-counts).tolist() == [-most, 0] and counts.dtype == kind

    def test_few_files_are_open_at_a_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("halflabel.data.columns.MAX_OPEN_FILES", 3)
        files, _ = module.shards(tmp_path, range(40), lambda numbers: module.list_array(
            [np.arange(number, dtype=np.int32) for number in numbers], np.int32), 4)
        ids = module.TokenIds(files, "key")
        order = np.random.default_rng(0).permutation(40).tolist()
        assert all(ids[i].tolist() == list(range(i)) for i in order) and ids.lengths().tolist() == list(range(40))
        assert ids.opened.cache_info().currsize == 3 and len(ids.files) == 10


class TestClearing:
    def test_what_is_open_stays_usable_while_the_cache_is_emptied(self, texts: TextColumn, tiny_encoder: str) -> None:
        class Emptied(Encoder):
            """The cache is emptied before each batch of token ids."""

            def tokens(self, texts: list[str]) -> list[np.ndarray]:
                prune(0, kept=())
                return super().tokens(texts)

        plain = load_encoder(tiny_encoder)
        everything, expected = concat(["goal"], texts), encode(plain, ["goal", *POOL])
        cache = EncoderCache(cache_folder(), Emptied(plain.body, plain.tokenizer))
        ids, rows = cache.token_ids(texts), cache.vector_rows(everything)
        assert prune(0).in_use == 3
        assert list(texts) == POOL and len(list(ids)) == len(POOL)
        np.testing.assert_allclose(np.stack(list(rows)), expected, atol=1e-5)
        del ids, rows
        assert prune(0).in_use == 1 and not list((cache_folder() / "vectors").rglob("*.arrow"))


class TestVectors:
    def test_a_text_in_memory_is_encoded_once(self, tiny_encoder: str, tmp_path: Path) -> None:
        encoder = counting(tiny_encoder)
        cache = EncoderCache(tmp_path, encoder)
        first = cache.vectors(["goal", "bread", "goal"])
        second = cache.vectors(["bread", "goal", "bank"])
        assert encoder.count == 3
        assert np.array_equal(first[0], second[1]) and np.array_equal(first[0], first[2])
        later = counting(tiny_encoder)
        assert np.array_equal(EncoderCache(tmp_path, later).vectors(["bank"])[0], second[2]) and later.count == 0
        assert cache.vectors([]).shape == (0, 32)

    def test_a_pool_on_disk_is_encoded_once_however_it_is_read(self, texts: TextColumn, tiny_encoder: str,
                                                               tmp_path: Path) -> None:
        encoder = counting(tiny_encoder)
        cache, everything = EncoderCache(tmp_path, encoder), concat(["goal"], texts)
        vectors, rows = cache.vectors(everything), cache.vector_rows(everything)
        assert encoder.count == 1 + len(texts) and vectors.shape == (1 + len(texts), 32)
        assert all(np.array_equal(vectors[i], rows[i]) for i in range(len(everything)))

    def test_a_killed_run_loses_one_shard_of_a_pool(self, texts: TextColumn, tiny_encoder: str, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
        encoder = load_encoder(tiny_encoder)
        calls: list[int] = []

        def counted(encoder: Encoder, texts: list[str], *, consistent: bool) -> np.ndarray:
            calls.append(len(texts))
            if len(calls) == 3:
                raise KeyboardInterrupt
            return encode(encoder, texts, consistent=consistent)

        monkeypatch.setattr(module, "encode", counted)
        with pytest.raises(KeyboardInterrupt):
            EncoderCache(tmp_path / "c", encoder).vector_rows(texts)
        assert [path for path in (tmp_path / "c").rglob(".*") if path.is_file()] == []
        rows = EncoderCache(tmp_path / "c", encoder).vector_rows(texts)
        assert calls == [8, 8, 8, 8, 8, 4]
        np.testing.assert_allclose(np.stack(list(rows)), encode(encoder, POOL), atol=1e-5)

    def test_a_damaged_shard_is_computed_again(self, texts: TextColumn, tiny_encoder: str, tmp_path: Path) -> None:
        encoder = counting(tiny_encoder)
        cache = EncoderCache(tmp_path / "c", encoder)
        for compute in (lambda: cache.vectors(POOL[:9]), lambda: np.stack(list(cache.vector_rows(texts)))):
            vectors, before = compute(), encoder.count
            shard = min((tmp_path / "c").rglob("*.arrow"), key=lambda file: file.stat().st_mtime_ns)
            size = len(module.open_columns(shard, "value")[0])
            shard.write_bytes(shard.read_bytes()[:100])
            assert np.array_equal(compute(), vectors) and encoder.count == before + size > before
            for file in (tmp_path / "c").rglob("*.arrow"):
                file.unlink()

    def test_another_encoder_has_its_own_folder(self, tiny_encoder: str, tmp_path: Path) -> None:
        short, long = (EncoderCache(tmp_path, load_encoder(tiny_encoder, limit)) for limit in (8, 16))
        assert short.vector_folder != long.vector_folder

    def test_bags_of_words_have_vectors_too(self, tmp_path: Path) -> None:
        counts, weighted = (BagOfWords.fit(POOL, 20, tf_idf=tf_idf) for tf_idf in (False, True))
        for bag in (counts, weighted):
            assert np.allclose(EncoderCache(tmp_path, bag).vectors(POOL), bag.matrix(POOL).toarray(), atol=1e-5)
        assert counts.fingerprint() != weighted.fingerprint()

    def test_keys_differ_by_content(self) -> None:
        assert text_hash("a") != text_hash("b") and text_hash("a") == text_hash("a") and len(text_hash("\ud800")) == 16


class TestTraining:
    def test_inputs_are_the_same_from_memory_and_from_disk(self, texts: TextColumn, tiny_encoder: str,
                                                           tmp_path: Path) -> None:
        encoder = load_encoder(tiny_encoder)
        cache = EncoderCache(tmp_path / "c", encoder)
        rows, views = np.array([5, 0, 30]), np.array([0, 0, 0])
        memory, disk = TokenInputs(encoder, [POOL]), TokenInputs(encoder, [texts], cache=cache)
        assert all(torch.equal(a, b) for a, b in zip(memory(rows, views), disk(rows, views), strict=True))
        torch.testing.assert_close(VectorInputs([encode(encoder, POOL)])(rows, views)[0],
                                   VectorInputs([cache.vector_rows(texts)])(rows, views)[0])

    @pytest.mark.parametrize(("method", "plan"), [("bdd-f", "laptop"), ("bdd-s", "frozen"), ("lift", "laptop")])
    def test_models_are_the_same_from_memory_and_from_disk(self, texts: TextColumn, tiny_encoder: str, method: str,
                                                           plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
        # eight steps on random weights may collapse, which is not tested here
        monkeypatch.setattr("halflabel.training.statistics.COLLAPSE_THRESHOLD", 0.0)
        labelled, labels = tiny_texts(4)
        X, y = [*labelled, POOL[0], "a text of nobody"], [*labels, None, None]
        settings = {"epochs": 2, "epoch_steps": 4, "warmup": 4}
        fits = [TextClassifier(method, tiny_encoder, plan, settings=settings, minutes=60).fit(X, y, unlabelled=pool)
                for pool in (POOL, texts)]
        weights = [dict(clf.model_.network.state_dict()) for clf in fits]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
        assert fits[0].transduction_.tolist() == fits[1].transduction_.tolist()
        assert fits[0].labeled_iter_.tolist() == fits[1].labeled_iter_.tolist()
        assert len(fits[0].transduction_) == len(X) + len(POOL) and (fits[0].labeled_iter_ > 0).any()

    def test_lift_takes_a_sample_of_a_large_pool(self, texts: TextColumn, tiny_encoder: str,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("halflabel.fitting.POOL_LIMIT", 10)
        labelled, labels = tiny_texts(4)
        settings = {"epochs": 2, "epoch_steps": 4, "warmup": 4}
        disk, memory = (TextClassifier("lift", tiny_encoder, "laptop", settings=settings, minutes=60)
                        .fit(labelled, labels, unlabelled=pool) for pool in (texts, POOL))
        assert disk.model_.shape.unlabelled == 10
        assert 0 < (disk.labeled_iter_[len(labelled) :] >= 0).sum() <= 10
        assert len(disk.transduction_) == len(labelled) + len(POOL)
        assert memory.labeled_iter_.tolist() == disk.labeled_iter_.tolist()
