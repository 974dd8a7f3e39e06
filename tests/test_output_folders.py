"""Output folders: one process at a time, and only files that halflabel wrote are replaced."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from halflabel.atomic import replace_file, temporary_path, write_folder, write_text
from halflabel.cache_limit import cache_limit, entries, in_use, prune
from halflabel.data.corpus import Corpus
from halflabel.errors import OutputError, SettingError
from halflabel.output_folders import LOCK, MOVING, REPLACED, RUN, checkpoints, filled, locked, replacing, try_lock
from halflabel.persistence.model_folder import write_text_hashes
from halflabel.training.checkpoint import write_tensors


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "encoder").mkdir(parents=True)
    for name in ("run.json", "config.json", "model.safetensors", "encoder/vocab.txt", "notes.txt"):
        (folder / name).write_text(f"old {name}")
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def fail(run: Path, new: str) -> None:
    """A run that replaces another and fails when it has got as far as a new folder."""
    with suppress(ZeroDivisionError), replacing(run, RUN):
        (run / "run.json").write_text("new")
        (run / new).mkdir()
        raise ZeroDivisionError


class TestLock:
    def holder(self, folder: Path) -> subprocess.Popen[str]:
        code = ("import time; from pathlib import Path; from halflabel.output_folders import RUN, locked\n"
                f"with locked(Path({str(folder)!r}), RUN):\n    print('locked', flush=True); time.sleep(60)")
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ)
        assert process.stdout is not None and process.stdout.readline().strip() == "locked"
        return process

    def test_names_the_process_and_ends_with_it(self, tmp_path: Path) -> None:
        other = self.holder(tmp_path / "run")
        with pytest.raises(OutputError, match=rf"run is in use by another .* \(pid {other.pid}\); wait"), \
                locked(tmp_path / "run", RUN):
            pass
        other.send_signal(signal.SIGKILL)
        other.communicate()
        assert (tmp_path / "run" / LOCK).exists() and not filled(tmp_path / "run")
        with locked(tmp_path / "run", RUN):
            pass
        assert not (tmp_path / "run" / LOCK).exists()

    def test_leaves_nothing_behind(self, tmp_path: Path) -> None:
        with locked(tmp_path / "a" / "b", RUN):
            assert (tmp_path / "a" / "b" / LOCK).exists() and not filled(tmp_path / "a" / "b")
        assert not (tmp_path / "a").exists()
        with locked(tmp_path / "a" / "b", RUN):
            (tmp_path / "a" / "b" / "run.json").touch()
        assert texts(tmp_path) == {"a/b/run.json": ""}

    def test_is_for_one_thread_which_may_nest_it(self, tmp_path: Path) -> None:
        refused: list[OutputError] = []

        def enter() -> None:
            try:
                with locked(tmp_path, RUN):
                    pass
            except OutputError as error:
                refused.append(error)

        with locked(tmp_path, RUN), locked(tmp_path / "." / ".." / tmp_path.name, RUN):
            thread = threading.Thread(target=enter)
            thread.start()
            thread.join()
        assert len(refused) == 1
        enter()
        assert len(refused) == 1

    def test_a_lock_file_that_was_removed_in_the_meantime_is_created_again(self, tmp_path: Path) -> None:
        file = tmp_path / "lock"
        with try_lock(file) as first:
            file.unlink()
            with try_lock(file) as second:
                assert first and second and file.read_text() == str(os.getpid())

    @pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
    def test_a_read_only_folder_is_refused(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        try:
            with pytest.raises(OutputError, match="may not be written to"), locked(tmp_path / "run", RUN):
                pass
        finally:
            tmp_path.chmod(0o700)

    @pytest.mark.parametrize(("number", "way"), [(errno.EROFS, "the disk is read-only, so choose another place"),
                                                 (errno.EACCES, "change the permissions or choose another place")])
    def test_what_to_do_follows_from_the_reason(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int,
                                                way: str) -> None:
        def refused(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("halflabel.output_folders.os.open", refused)
        with pytest.raises(OutputError, match=rf"may not be written to \(.*\); {way}"), locked(tmp_path / "run", RUN):
            pass
        assert not list(tmp_path.iterdir())

    def test_a_folder_that_cannot_be_created_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(OutputError, match="file is a file"), locked(tmp_path / "file", RUN):
            pass
        with pytest.raises(OutputError, match="run may not be written to"), locked(tmp_path / "file" / "run", RUN):
            pass

    def test_temporary_files_of_a_killed_process_are_removed_and_others_stay(self, run: Path) -> None:
        stale, live = temporary_path(run / "model.safetensors"), temporary_path(run / "labels.csv")
        for file in (stale, live, run / ".config.json-mine"):
            file.touch()
        temporary_path(run / "checkpoint-00000003").mkdir()
        with locked(run, RUN):
            hidden = {path.name for path in run.iterdir() if path.name.startswith(".")}
        assert hidden == {LOCK, live.name, ".config.json-mine"}


class TestReplacing:
    def test_replaces_our_files_and_keeps_others(self, run: Path) -> None:
        with replacing(run, RUN):
            assert not filled(run) and texts(run)["notes.txt"] == "old notes.txt" and not (run / "run.json").exists()
            (run / "run.json").write_text("new")
        assert texts(run) == {"run.json": "new", "notes.txt": "old notes.txt"}

    def test_a_failure_restores_everything(self, run: Path) -> None:
        before = texts(run)
        fail(run, "encoder")
        assert texts(run) == before and not list(run.glob(".*"))

    def test_a_failure_after_the_first_checkpoint_keeps_the_new_files(self, run: Path) -> None:
        fail(run, "checkpoint-00000003")
        assert texts(run) == {"run.json": "new", "notes.txt": "old notes.txt"} and checkpoints(run)

    @pytest.mark.parametrize("when", ["moving", "replaced", "begun"])
    def test_a_kill_loses_nothing(self, run: Path, when: str) -> None:
        before, aside = texts(run), run / (MOVING if when == "moving" else REPLACED)
        aside.mkdir()
        for path in RUN.ours(run)[1 if when == "moving" else 0:]:
            path.rename(aside / path.name)
        if when == "begun":
            (run / "run.json").write_text("new")
        with locked(run, RUN):
            pass
        assert texts(run) == before

    def test_a_kill_after_the_first_checkpoint_keeps_the_new_files(self, run: Path) -> None:
        (run / REPLACED).mkdir()
        for path in RUN.ours(run):
            path.rename(run / REPLACED / path.name)
        (run / "run.json").write_text("new")
        (run / "checkpoint-00000003").mkdir()
        with locked(run, RUN):
            assert texts(run) == {"run.json": "new", "notes.txt": "old notes.txt", LOCK: str(os.getpid())}

    def test_names_alone_do_not_make_a_file_ours(self, run: Path) -> None:
        (run / "checkpoint-best").mkdir()
        (run / "checkpoint-12345678").touch()
        assert not checkpoints(run)
        with pytest.raises(OutputError, match="checkpoint-12345678 is a file that halflabel did not write"):
            RUN.foreign(run)


def test_targets_of_links_are_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    for name in ("file", "folder", "run"):
        (tmp_path / name).symlink_to(tmp_path / "far" / name)
    write_text(tmp_path / "file", "text")
    write_folder(tmp_path / "folder", lambda folder: write_text(folder / "inside", "text"))
    with replacing(tmp_path / "run", RUN):
        write_text(tmp_path / "run" / "run.json", "text")
    assert texts(tmp_path / "far") == {"file": "text", "folder/inside": "text", "run/run.json": "text"}
    assert all((tmp_path / name).is_symlink() for name in ("file", "folder", "run"))


class TestTemporaryFiles:
    def test_those_of_a_killed_process_are_removed_by_the_next_that_writes_the_path(self, tmp_path: Path) -> None:
        for name in ("labels.csv", "export"):
            temporary_path(tmp_path / name).mkdir()
        other = temporary_path(tmp_path / "labels.csv.gz")
        other.touch()
        write_text(tmp_path / "labels.csv", "new")
        write_folder(tmp_path / "export", lambda folder: (folder / "model.onnx").touch())
        assert {path.name for path in tmp_path.iterdir()} == {"labels.csv", "export", other.name}

    def test_those_of_a_living_process_stay(self, tmp_path: Path) -> None:
        with replace_file(tmp_path / "labels.csv") as first:
            first.write_text("first")
            write_text(tmp_path / "labels.csv", "second")
            assert first.read_text() == "first"
        assert texts(tmp_path) == {"labels.csv": "first"}

    @pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
    def test_files_have_the_permissions_of_the_umask(self, tmp_path: Path, mask: int) -> None:
        before = os.umask(mask)
        try:
            write_tensors(tmp_path / "model.safetensors", {"weight": torch.ones(2)})
            write_text_hashes(tmp_path, Corpus(["a"], ["x"]), Corpus(["b"], [None]))
            write_folder(tmp_path / "folder", lambda folder: write_text(folder / "config.json", "{}"))
        finally:
            os.umask(before)
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
        assert modes == dict.fromkeys(("model.safetensors", "texts.safetensors", "config.json"), 0o666 & ~mask)


def test_a_full_disk_is_named_with_its_remedy_whatever_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("halflabel.training.checkpoint.save_file", full)
    with pytest.raises(OutputError, match=r"checkpoint could not be written \(No space left on device\); free some"):
        write_folder(tmp_path / "checkpoint", lambda folder: write_tensors(folder / "state.safetensors", {}))
    assert not list(tmp_path.iterdir())


class TestCacheLimit:
    @pytest.fixture
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("HALFLABEL_CACHE", str(tmp_path))
        now = time.time()
        for days, name in enumerate(("onnx/new/model.onnx", "vectors/e/pool/0.arrow", "pools/old/texts.arrow")):
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).write_bytes(b"x" * 100_000)
            os.utime(tmp_path / name, (now - days * 86_400, now - days * 86_400))
        (tmp_path / "theirs.txt").touch()
        return tmp_path

    def left(self, cache: Path) -> set[str]:
        return {file.name for file in cache.rglob("*") if file.is_file()}

    def test_what_was_not_used_for_longest_is_removed_first(self, cache: Path) -> None:
        assert [entry.path.name for entry in entries()] == ["old", "pool", "new"]
        assert prune(10**9) == (0, 0)
        assert prune(250_000).removed >= 100_000 and self.left(cache) == {"model.onnx", "0.arrow", "theirs.txt"}
        prune(0)
        assert self.left(cache) == {"theirs.txt"}

    def test_what_was_used_lately_stays(self, cache: Path) -> None:
        prune(0, unused_for=1.5 * 86_400)
        assert self.left(cache) == {"model.onnx", "0.arrow", "theirs.txt"}

    def test_what_is_in_use_stays(self, cache: Path) -> None:
        with in_use(cache / "pools" / "old"), in_use(cache / "pools" / "old"), in_use(cache / "tokens" / "e" / "new"):
            assert prune(0).in_use == 2
            assert self.left(cache) == {"texts.arrow", "theirs.txt"} and (cache / "tokens" / "e" / "new").is_dir()
        assert prune(0).in_use == 0 and self.left(cache) == {"theirs.txt"}

    def test_an_entry_that_is_removed_before_it_is_locked_is_made_again(self, cache: Path) -> None:
        entry, made = cache / "pools" / "new", []

        def make() -> None:
            made.append(True)
            write_folder(entry, lambda folder: (folder / "texts.arrow").touch())
            if len(made) == 1:
                prune(0)

        with in_use(entry, make):
            prune(0)
            assert len(made) == 2 and (entry / "texts.arrow").is_file()

    def test_what_a_killed_process_left_is_removed(self, cache: Path) -> None:
        temporary_path(cache / "pools" / "key").mkdir()
        prune(10**9)
        assert {path.name for path in (cache / "pools").iterdir()} == {"old"}

    @pytest.mark.parametrize("value", ["much", "-1", "nan"])
    def test_a_limit_that_is_no_size_is_refused(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv("HALFLABEL_CACHE_LIMIT", value)
        with pytest.raises(SettingError, match=f"HALFLABEL_CACHE_LIMIT={value} is not a size; set it to a number"):
            cache_limit()
