"""The six corpora in the layout of their publishers, with small contents, and messages about damaged files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from halflabel.bench.corpora import SOURCES, load
from halflabel.bench.paper import TASKS
from halflabel.bench.published_corpora import PUBLISHED_SIZES, CorpusParts, SampledTexts, compare_with_paper
from halflabel.data.corpus import Corpus, LazySequence
from halflabel.errors import HalflabelError

AG = '"3","Oil (Agency)","Agency - Oil fell\\to a\\new low, ""again""."\n"4","Bees","They count."\n'
YELP = '"5","dr. said \\""fine\\"".\\n\\nWe agreed."\n"1","bad, bad"\n'
YAHOO = '"10","who votes?","","all do.\\nor may."\n"2","why blue","sky,  I mean","light"\n'
TOPICS = "E11 1 1\nECAT 1 1\nM11 2 1\nECAT 3 1\nM11 3 1\nGCAT 4 1\nE11 5 1\nE11 6 1\n"


def put(folder: Path, **files: str | bytes) -> Path:
    """Files by name, `__` standing for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def tables(folder: Path, train: str | bytes, test: str | bytes) -> Path:
    return put(folder, train__csv=train, test__csv=test)


def ohsumed(folder: Path, texts: int = 20) -> Path:
    for k in range(1, 24):
        (folder / f"C{k:02d}").mkdir(parents=True)
    for i in range(texts):
        for k in {i % 23 + 1, 7}:
            (folder / f"C{k:02d}" / f"{i:07d}").write_text(f"Finding {i}.\n  A patient was seen.\n")
    return folder


def aapd(folder: Path) -> Path:
    return put(folder, text_train="we sort lists\nwe prove it\n", label_train="cs.DS cs.DM\nmath.LO\n",
               text_val="we code\n", label_val="cs.IT math.IT\n", text_test="we learn\n", label_test="cs.LG\n")


def rcv1(folder: Path, train: str = ".I 1\n.W\nbank rate rose\nbank cut\n\n.I 2\n.W\ngold fell\n") -> Path:
    put(folder, lyrl2004_tokens_train__dat=train)
    for i in range(4):
        (folder / f"lyrl2004_tokens_test_pt{i}.dat").write_text(f".I {3 + i}\n.W\nword{i} next\n\n")
    (folder / "rcv1-v2.topics.qrels").write_text(TOPICS)
    return folder


def message(folder: Path, name: str) -> str:
    with pytest.raises(HalflabelError) as error:
        load(name, folder)
    return str(error.value)


class TestClassCsv:
    def test_ag_news_has_descriptions_with_line_breaks_unescaped(self, tmp_path: Path) -> None:
        parts = load("ag_news", tables(tmp_path, AG, AG.splitlines()[1]))
        assert list(parts.train.texts) == ['Agency - Oil fell to a new low, "again".', "They count."]
        assert parts.train.labels == ["Business", "Sci/Tech"] and parts.test.labels == ["Sci/Tech"]
        assert parts.dev is None and len(parts.notices) == 1

    def test_yelp_is_unescaped(self, tmp_path: Path) -> None:
        parts = load("yelp", tables(tmp_path, YELP, YELP))
        assert list(parts.test.texts) == ['dr. said "fine".\n\nWe agreed.', "bad, bad"]
        assert parts.train.labels == [5, 1]

    def test_yahoo_joins_question_and_answer(self, tmp_path: Path) -> None:
        parts = load("yahoo", tables(tmp_path, YAHOO, YAHOO))
        assert list(parts.train.texts) == ["who votes? all do.\nor may.", "why blue sky,  I mean light"]
        assert parts.train.labels == ["Politics & Government", "Science & Mathematics"]

    def test_a_header_gzip_windows_line_ends_and_the_unpacked_folder_are_accepted(self, tmp_path: Path) -> None:
        inside = tmp_path / "ag_news_csv"
        inside.mkdir()
        (inside / "train.csv.gz").write_bytes(gzip.compress(("Class Index,Title,Description\n" + AG).encode()))
        (inside / "test.csv").write_bytes(AG.replace("\n", "\r\n").encode())
        parts = load("ag_news", tmp_path)
        assert list(parts.train.texts) == list(parts.test.texts) and len(parts.test) == 2

    def test_a_cell_may_hold_line_ends_of_all_kinds(self, tmp_path: Path) -> None:
        parts = load("yelp", tables(tmp_path, '"1","a\nb\u2028c\x0cd"\n"2","e"\n', YELP))
        assert list(parts.train.texts) == ["a\nb\u2028c\x0cd", "e"]

    def test_texts_stay_on_disk_and_samples_are_in_memory(self, tmp_path: Path) -> None:
        parts = load("yelp", tables(tmp_path, YELP, YELP))
        assert isinstance(parts.train.texts, SampledTexts) and isinstance(parts.test.texts, LazySequence)
        assert parts.train.take([1]).texts == ["bad, bad"] and parts.train.texts[-1] == "bad, bad"
        assert parts.train.texts[:1] == list(parts.train.texts)[:1] and len(parts.train.texts) == 2

    def test_a_second_load_reads_the_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = load("yelp", tables(tmp_path, YELP, YELP))
        monkeypatch.setattr("halflabel.bench.published_corpora.parse_rows", lambda *_: pytest.fail("read again"))
        again = load("yelp", tmp_path)
        assert list(again.train.texts) == list(first.train.texts) and again.train.labels == first.train.labels
        tables(tmp_path, YELP * 2, YELP)
        with pytest.raises(pytest.fail.Exception, match="read again"):
            load("yelp", tmp_path)

    @pytest.mark.parametrize(("train", "words"), [
        ('"3","a"\n', ["train.csv, line 1: 2 cells where class index, title, description are expected"]),
        ('"3","a","b"\n"5","a","b"\n', ["line 2", "'5' is not a class index from 1 to 4"]),
        ('"3","a","b"\nx,"a","b"\n', ["line 2", "'x' is not a class index"]),
        ('"3","a\nb","c"\n"4","a","cut he', ["line 3", "may be truncated", "unpack it again"]),
        ('"3","a","\xe9t\xe9"\n'.encode("latin-1"), ["line 1", "not UTF-8"]),
        ("", ["train.csv is empty"]),
        ("World,a,b\nSports,c,d\n", ["train.csv", "none of the columns 'World', 'a', 'b'"]),
    ])
    def test_bad_files(self, tmp_path: Path, train: str | bytes, words: list[str]) -> None:
        sentence = message(tables(tmp_path, train, AG), "ag_news")
        assert all(word in sentence for word in words), sentence
        assert not list((tmp_path / "cache").rglob("*.arrow"))

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        assert "lacks test.csv; put it next to" in message(put(tmp_path, train__csv=AG), "ag_news")


class TestOhsumed:
    def test_an_abstract_has_all_its_categories(self, tmp_path: Path) -> None:
        parts = load("ohsumed", ohsumed(tmp_path / "ohsumed-all").parent)
        assert (len(parts.train), len(parts.test)) == (14, 6)
        both = dict(zip([*parts.train.texts, *parts.test.texts], parts.train.labels + parts.test.labels, strict=True))
        assert both["Finding 0.\n  A patient was seen."] == ("C01", "C07")
        assert both["Finding 6.\n  A patient was seen."] == ("C07",) and len(both) == 20

    def test_the_split_is_always_the_same(self, tmp_path: Path) -> None:
        folder = ohsumed(tmp_path / "all")
        assert load("ohsumed", folder).test.texts == load("ohsumed", folder).test.texts

    def test_the_edition_in_halves_is_read_as_one(self, tmp_path: Path) -> None:
        ohsumed(tmp_path / "training", 10)
        for k in range(1, 24):
            (tmp_path / "test" / f"C{k:02d}").mkdir(parents=True)
        (tmp_path / "test" / "C02" / "9999999").write_text("Another.")
        parts = load("ohsumed", tmp_path)
        assert len(parts.train) + len(parts.test) == 11

    def test_bad_folders(self, tmp_path: Path) -> None:
        folder = ohsumed(tmp_path / "all")
        (folder / "C03" / "0000002").write_text(" \n")
        assert "C03/0000002 is empty; unpack" in message(folder, "ohsumed")
        (folder / "C23").rmdir()
        assert "has no folder C23; unpack ohsumed-all-docs.tar.gz" in message(folder, "ohsumed")


class TestAapd:
    def test_training_and_validation_are_one(self, tmp_path: Path) -> None:
        parts = load("aapd", aapd(tmp_path))
        assert parts.train.texts == ["we sort lists", "we prove it", "we code"]
        assert parts.train.labels == [("cs.DS", "cs.DM"), ("math.LO",), ("cs.IT", "math.IT")]
        assert parts.test.labels == [("cs.LG",)] and parts.dev is None

    def test_bad_files(self, tmp_path: Path) -> None:
        put(aapd(tmp_path), label_train="cs.DS\n")
        sentence = message(tmp_path, "aapd")
        assert "text_train has 2 lines" in sentence and "label_train has 1; one of them is truncated" in sentence
        put(tmp_path, label_train="cs.DS\n \n")
        assert "label_train, line 2 is empty" in message(tmp_path, "aapd")
        (tmp_path / "text_val").unlink()
        assert "lacks text_val; put it next to" in message(tmp_path, "aapd")


class TestRcv1:
    def test_tokens_are_joined_with_their_topics(self, tmp_path: Path) -> None:
        parts = load("rcv1", rcv1(tmp_path))
        assert list(parts.train.texts) == ["bank rate rose bank cut", "gold fell"]
        assert parts.train.labels == [("E11", "ECAT"), ("M11",)]
        assert list(parts.test.texts) == [f"word{i} next" for i in range(4)]
        assert parts.test.labels == [("ECAT", "M11"), ("GCAT",), ("E11",), ("E11",)]
        assert isinstance(parts.test.texts, LazySequence) and isinstance(parts.train.texts, SampledTexts)

    def test_compressed_files_give_the_same(self, tmp_path: Path) -> None:
        plain, packed = rcv1(tmp_path / "plain"), rcv1(tmp_path / "packed" / "rcv1")
        for file in list(packed.iterdir()):
            Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
        left, right = load("rcv1", plain), load("rcv1", packed.parent)
        assert list(left.test.texts) == list(right.test.texts) and left.train.labels == right.train.labels

    @pytest.mark.parametrize(("train", "words"), [
        (".I 1\n.W\nbank\n.I 2\n.W\n", ["line 4", "document 2 has no words after .W", "may be truncated"]),
        (".I 1\nbank\n", ["line 1", "document 1 has no words after .W"]),
        (".I one\n.W\nbank\n", ["line 1", "'.I one' is not .I NUMBER"]),
        ("2286 864:0.04\n", ["line 1", "'2286 864:0.04' comes before the first .I", "lyrl2004_tokens_*.dat"]),
        ("\n", ["has no documents"]),
        (".I 77\n.W\nbank\n", ["rcv1-v2.topics.qrels has no topic for document 77 of", "truncated"]),
    ])
    def test_bad_token_files(self, tmp_path: Path, train: str, words: list[str]) -> None:
        sentence = message(rcv1(tmp_path, train), "rcv1")
        assert all(word in sentence for word in words), sentence

    def test_bad_topics_and_a_missing_file(self, tmp_path: Path) -> None:
        (rcv1(tmp_path) / "rcv1-v2.topics.qrels").write_text(TOPICS + "E11 5")
        assert "line 9: 'E11 5' is not TOPIC DOCUMENT 1" in message(tmp_path, "rcv1")
        (tmp_path / "lyrl2004_tokens_test_pt2.dat").unlink()
        assert "lacks lyrl2004_tokens_test_pt2.dat" in message(tmp_path, "rcv1")


class TestStatistics:
    def test_differences_from_the_paper_are_one_sentence(self, tmp_path: Path) -> None:
        (sentence,) = load("aapd", aapd(tmp_path)).notices
        assert sentence == ("aapd differs from the paper's corpus: it has 3 training texts (the paper: 54,840), 1 test "
                            "texts (the paper: 1,000), 6 classes (the paper: 54), 1.50 labels per text (the paper: "
                            "2.41)")

    def test_the_papers_counts_need_no_notice(self) -> None:
        names = ["World", "Sports", "Business", "Sci/Tech"]
        whole = [Corpus(["x"] * n, (names * n)[:n]) for n in (120_000, 7_600)]
        assert compare_with_paper("ag_news", CorpusParts(whole[0], None, whole[1])).notices == ()
        assert compare_with_paper("mine", CorpusParts(whole[1], None, whole[1])).notices == ()

    def test_yahoo_is_known_to_be_larger_than_the_paper_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert PUBLISHED_SIZES == {"yahoo": 1_400_000}
        monkeypatch.setitem(PUBLISHED_SIZES, "yahoo", 20)
        many, few = (Corpus(["x"] * n, [*range(10)] * (n // 10)) for n in (20, 10))
        (sentence,) = compare_with_paper("yahoo", CorpusParts(many, None, few)).notices
        assert "20 training texts (the paper: 700,000)" in sentence and sentence.endswith("as the published file")


@pytest.mark.parametrize("name", list(SOURCES))
def test_a_missing_corpus_is_named_with_its_publisher(name: str, tmp_path: Path) -> None:
    assert SOURCES.keys() == TASKS.keys()
    for folder in (tmp_path, tmp_path / "nowhere"):
        sentence = message(folder, name)
        source = SOURCES[name]
        assert sentence.startswith(f"{folder} has no files of {source.title}; get {source.archive} from "
                                   f"{source.publisher}")
        assert source.files[0] in sentence and source.files[-1] in sentence and "\n" not in sentence


def test_files_with_another_header_are_read_as_user_files(tmp_path: Path) -> None:
    parts = load("ag_news", tables(tmp_path, "text,label\nred\\nose,World\n", "text,label\nblue,Sports\n"))
    assert parts.train.texts == ["red nose"] and parts.test.labels == ["Sports"]
    (tmp_path / "test.csv").rename(tmp_path / "test.txt.csv")
    assert load("ag_news", tmp_path).test.texts == ["blue"]


def test_the_cache_command_knows_the_corpora(tmp_path: Path) -> None:
    from halflabel.atomic import cache_folder
    from halflabel.cli.info import KINDS

    load("yelp", tables(tmp_path / "yelp", YELP, YELP + YELP))
    assert len(list((cache_folder() / "corpora").glob("*/texts.arrow"))) == 2 and "corpora" in KINDS
    assert [entry.name for entry in cache_folder().iterdir()] == ["corpora"]
