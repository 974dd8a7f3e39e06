"""Consistency between a text and a strong view of it: UDA, FixMatch, FlexMatch, FreeMatch, SoftMatch.

Without a pool, UDA is cross-entropy on the labelled texts; for the others the labelled texts stand in for the pool,
as in their authors' library, which always puts them there too.
"""

from __future__ import annotations

from dataclasses import replace

from halflabel.methods.registry import method
from halflabel.model.head import Linear
from halflabel.parts.anneal import annealed
from halflabel.parts.losses import cross_entropy, divergence
from halflabel.parts.penalty import Fairness
from halflabel.parts.pseudo import Labeller, Sharpen
from halflabel.parts.thresholds import Confident, Fair, Flexible, Truncated
from halflabel.parts.weight import constant
from halflabel.train.objective import SelfTraining
from halflabel.types import Shape


@method("uda", task="multi-class", paper="UDA: Xie et al., NeurIPS 2020",
        plans={"frozen": {"warmup": 0}, "laptop": {"warmup": 0}})
def uda(shape: Shape, *, anneal: str = "linear", T: float = 1.0, cutoff: float = 0.0,
        lambda1: float = 1.0) -> SelfTraining:
    """A strong view gets the text's own soft label; sure labelled texts wait (training-signal annealing)."""
    return SelfTraining(
        head=Linear(shape), loss=divergence, pseudo=Sharpen(T, cutoff), weight=constant(lambda1), strong_views=True,
        release=annealed(anneal) if anneal != "none" and shape.unlabelled else None,
    )


@method("fixmatch", task="multi-class", paper="FixMatch: Sohn et al., NeurIPS 2020", labelled_pool=True)
def fixmatch(shape: Shape, *, cutoff: float = 0.95, lambda1: float = 1.0) -> SelfTraining:
    """A strong view gets the text's hard label where that is surer than a fixed cutoff."""
    return matching(shape, Confident(cutoff), lambda1)


@method("flexmatch", task="multi-class", paper="FlexMatch: Zhang et al., NeurIPS 2021", labelled_pool=True)
def flexmatch(shape: Shape, *, cutoff: float = 0.95, count_unused: str = "yes",
              lambda1: float = 1.0) -> SelfTraining:
    """FixMatch with a lower cutoff for classes that are learnt more slowly."""
    return matching(shape, Flexible(shape, cutoff, count_unused=count_unused == "yes"), lambda1)


@method("freematch", task="multi-class", paper="FreeMatch: Wang et al., ICLR 2023", labelled_pool=True)
def freematch(shape: Shape, *, momentum: float = 0.999, lambda1: float = 1.0, lambda2: float = 0.001) -> SelfTraining:
    """FixMatch with self-adaptive thresholds and a fairness term that keeps predictions spread."""
    pseudo = Fair(shape, momentum)
    return replace(matching(shape, pseudo, lambda1), penalty=Fairness(lambda2, pseudo.wanted))


@method("softmatch", task="multi-class", paper="SoftMatch: Chen et al., ICLR 2023", labelled_pool=True)
def softmatch(shape: Shape, *, momentum: float = 0.999, sigmas: float = 2.0, lambda1: float = 1.0) -> SelfTraining:
    """FixMatch with a weight for each text, by a bell curve of its confidence, instead of a cutoff."""
    return matching(shape, Truncated(shape, momentum, sigmas), lambda1)


def matching(shape: Shape, pseudo: Labeller, lambda1: float) -> SelfTraining:
    """Hard labels of the text itself, learnt on a strong view."""
    return SelfTraining(head=Linear(shape), loss=cross_entropy, pseudo=pseudo, weight=constant(lambda1),
                        strong_views=True)
