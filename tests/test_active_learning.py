"""Strategies of active learning: what they select from made-up vectors and probabilities, and why."""

from __future__ import annotations

import numpy as np
import pytest

from halflabel.active_learning import (
    NEAR_DUPLICATE,
    STRATEGIES,
    Candidates,
    Scores,
    doubt,
    explain,
    find_strategy,
    representatives,
    without_near_duplicates,
)
from halflabel.errors import SettingError

NAMES = ("chess", "money", "sport")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def clusters(per_cluster: int = 30, number: int = 3, width: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Vectors around well separated centres, and the cluster of each."""
    draw = rng(seed)
    centres = np.eye(width)[:number] * 4
    cluster = np.repeat(np.arange(number), per_cluster)
    return centres[cluster] + draw.normal(size=(len(cluster), width)) * 0.5, cluster


def probabilities(cluster: np.ndarray, seed: int = 0, labels: int = 3) -> np.ndarray:
    """Probabilities whose most probable class is the cluster, with random doubt."""
    top = rng(seed).uniform(0.4, 0.99, len(cluster))
    p = np.repeat(((1 - top) / (labels - 1))[:, None], labels, axis=1)
    p[np.arange(len(p)), cluster] = top
    return p


def choose(name: str, x: np.ndarray, p: np.ndarray | None, n: int, *, labelled: np.ndarray | None = None,
           counts: np.ndarray | None = None, seed: int = 0, limit: int = 1000) -> np.ndarray:
    """Rows that a strategy selects."""
    strategy, draw = STRATEGIES[name], rng(seed)
    scores = None if p is None else Scores.of(p, "multi-class")
    rows = strategy.shortlist(scores, len(x), n, limit, draw)
    near = np.zeros((0, x.shape[1])) if labelled is None else labelled
    given = np.zeros(0 if p is None else p.shape[1]) if counts is None else counts
    candidates = Candidates.of(x[rows], near, None if scores is None else scores[rows], given)
    return rows[strategy.select(candidates, n, draw)]


class TestDoubt:
    def test_margin_of_the_two_most_probable_classes(self) -> None:
        p = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.6, 0.3, 0.1]])
        assert doubt(p, "multi-class") == pytest.approx([1.0, 0.0, 0.7])

    def test_mean_entropy_of_several_labels(self) -> None:
        p = np.array([[0.5, 0.5], [1.0, 0.5], [1.0, 0.0], [0.11, 0.0]])
        assert doubt(p, "multi-label") == pytest.approx([1.0, 0.5, 0.0, 0.25], abs=1e-3)


class TestEveryStrategy:
    @pytest.mark.parametrize("name", STRATEGIES)
    def test_distinct_rows_that_depend_on_the_seed_alone(self, name: str) -> None:
        x, cluster = clusters()
        first, again = (choose(name, x, probabilities(cluster), 12, seed=3) for _ in range(2))
        assert len(set(first.tolist())) == 12
        assert first.tolist() == again.tolist()

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_the_whole_pool_if_as_many_are_wanted(self, name: str) -> None:
        x, cluster = clusters(4)
        assert sorted(choose(name, x, probabilities(cluster), 12)) == list(range(12))

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_equal_texts(self, name: str) -> None:
        x = np.ones((8, 4))
        assert len(set(choose(name, x, np.full((8, 2), 0.5), 5).tolist())) == 5

    def test_an_unknown_name(self) -> None:
        with pytest.raises(SettingError, match="no strategy 'magic'; choose one of balanced"):
            find_strategy("magic")


class TestUncertainty:
    def test_the_smallest_margins_first(self) -> None:
        x, cluster = clusters()
        p = probabilities(cluster)
        ordered = np.sort(p, axis=1)
        assert choose("uncertainty", x, p, 7).tolist() == np.argsort(ordered[:, -1] - ordered[:, -2])[:7].tolist()


class TestRandom:
    def test_uniform(self) -> None:
        x, counts = np.zeros((10, 2)), np.zeros(10)
        for seed in range(600):
            counts[choose("random", x, None, 3, seed=seed)] += 1
        assert counts.sum() == 1800 and np.abs(counts - 180).max() < 50

    def test_other_seeds_give_other_texts(self) -> None:
        x = np.zeros((100, 2))
        assert choose("random", x, None, 5, seed=0).tolist() != choose("random", x, None, 5, seed=1).tolist()


class TestDiverse:
    def test_every_cluster_is_represented(self) -> None:
        x, cluster = clusters(number=6)
        assert set(cluster[choose("diverse", x, None, 6)]) == set(range(6))

    def test_what_labelled_texts_cover_comes_last(self) -> None:
        x, cluster = clusters(number=4)
        labelled = np.flatnonzero(cluster == 0)[:2]
        chosen = choose("diverse", x, None, 3, labelled=x[labelled])
        assert set(cluster[chosen]) == {1, 2, 3}

    def test_more_labelled_texts_than_clusters(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("halflabel.active_learning.MOST_COVERED", 1)
        x, cluster = clusters(number=4)
        labelled = np.r_[np.flatnonzero(cluster == 0)[:9], np.flatnonzero(cluster == 1)[:9]]
        chosen = choose("diverse", x, None, 3, labelled=x[labelled])
        assert set(cluster[chosen[:2]]) == {2, 3}


class TestBalanced:
    def test_without_a_model_it_represents_the_pool(self) -> None:
        x, cluster = clusters(number=5)
        assert set(cluster[choose("balanced", x, None, 5)]) == set(range(5))

    def test_all_guessed_classes_are_covered(self) -> None:
        x, cluster = clusters(40)
        x, cluster = x[:95], cluster[:95]  # 15 texts of the third class
        assert set(cluster[choose("balanced", x, probabilities(cluster), 6)]) == {0, 1, 2}

    def test_doubtful_texts_only(self) -> None:
        x, cluster = clusters()
        p = probabilities(cluster)
        chosen = choose("balanced", x, p, 9)
        for k in range(3):
            rows = np.flatnonzero(cluster == k)
            median = np.median(doubt(p[rows], "multi-class"))
            assert (doubt(p[[i for i in chosen if cluster[i] == k]], "multi-class") >= median).all()

    def test_more_of_a_class_with_few_labels(self) -> None:
        x, cluster = clusters(60)
        p = probabilities(cluster)
        few = [int((cluster[choose("balanced", x, p, 12, counts=np.array(counts), seed=seed)] == 0).sum())
               for counts in ([1.0, 50.0, 50.0], [50.0, 1.0, 1.0]) for seed in range(3)]
        assert sum(few[:3]) > sum(few[3:])

    def test_no_near_duplicates(self) -> None:
        x, cluster = clusters(20)
        x, cluster = np.concatenate([x, x + 1e-3, x - 1e-3]), np.tile(cluster, 3)
        chosen = choose("balanced", x, probabilities(cluster), 15)
        unit = Candidates.of(x, x[:0]).vectors[chosen]
        assert (unit @ unit.T - np.eye(15)).max() <= NEAR_DUPLICATE

    def test_no_near_duplicates_of_labelled_texts(self) -> None:
        x, cluster = clusters(20)
        chosen = choose("balanced", x, probabilities(cluster), 5, labelled=x[::2] + 1e-3)
        assert (chosen % 2 == 1).all()

    def test_outliers_come_last(self) -> None:
        x, cluster = clusters(40)
        strays = rng(1).normal(size=(2, 16)) * np.r_[np.zeros(8), np.full(8, 9.0)]
        x = np.concatenate([x, strays])
        p = probabilities(np.concatenate([cluster, np.zeros(2, int)]))
        p[-2:] = 1 / 3  # in doubt as much as possible
        assert max(choose("balanced", x, p, 20)) < 120

    def test_a_rare_class_has_its_place_in_the_shortlist_of_a_large_pool(self) -> None:
        guess = np.r_[np.zeros(5000, int), np.ones(20, int)]
        scores = Scores(rng().uniform(size=5020), guess)
        rows = STRATEGIES["balanced"].shortlist(scores, 5020, 10, 100, rng())
        assert len(rows) == 100 and (guess[rows] == 1).sum() == 10


class TestSelection:
    def test_near_duplicates_only_where_others_are_too_few(self) -> None:
        x = np.array([[1.0, 0.0], [1.0, 0.001], [0.0, 1.0], [-1.0, -1.0]])
        candidates = Candidates(x / np.linalg.norm(x, axis=1, keepdims=True), np.zeros((0, 2)), None, np.zeros(0))
        assert without_near_duplicates(candidates, np.arange(4), 3).tolist() == [0, 2, 3]
        assert without_near_duplicates(candidates, np.arange(4), 4).tolist() == [0, 2, 3, 1]

    def test_heavy_clusters_come_first(self) -> None:
        x, cluster = clusters()
        candidates = Candidates.of(x, x[:0])
        chosen = representatives(candidates, 3, np.array([1.0, 5.0, 2.0])[cluster], rng())
        assert cluster[chosen].tolist() == [1, 2, 0]


class TestReasons:
    def reasons(self, *kinds: str, counts: list[float] | None = None, labelled: int = 0) -> list[str]:
        """Reasons for two texts: one between two classes, one that is sure and dense."""
        x = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.01], [0.0, 0.99]])
        p = np.array([[0.1, 0.4, 0.5], [0.9, 0.1, 0.0], [0.8, 0.1, 0.1], [0.8, 0.1, 0.1]])
        scores = Scores.of(p, "multi-class")
        candidates = Candidates.of(x, x[1 : 1 + labelled], scores, np.array(counts or [5.0, 5.0, 5.0]))
        return explain(candidates, np.array([0, 1]), p[:2], NAMES, "multi-class", kinds)

    def test_doubt_and_density(self) -> None:
        assert self.reasons("doubt", "density") == ["uncertain between sport and money", "covers a dense region"]

    def test_distance(self) -> None:
        assert self.reasons("remoteness", labelled=1)[0] == "far from labelled texts"
        assert self.reasons("remoteness", "density")[1] == "covers a dense region"

    def test_rarity(self) -> None:
        assert self.reasons("rarity", "doubt", counts=[1.0, 9.0, 9.0])[1] == "rare class: chess"

    def test_random(self) -> None:
        assert self.reasons() == ["random sample"] * 2

    def test_several_labels(self) -> None:
        p = np.array([[0.9, 0.45, 0.0]])
        candidates = Candidates.of(np.ones((1, 2)), np.zeros((0, 2)), Scores.of(p, "multi-label"), np.zeros(3))
        assert explain(candidates, np.array([0]), p, NAMES, "multi-label", ["doubt"]) == ["uncertain about money"]
