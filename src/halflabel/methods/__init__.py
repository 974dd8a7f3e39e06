"""The methods; each module registers a method or a family of methods when it is imported."""

from halflabel.methods import (
    asymmetric,
    bdd,
    consistency,
    lift,
    metaexpert,
    naive_bayes,
    sdrl,
    sklearn_baselines,
    supervised,
    vampire,
    vat,
)
from halflabel.methods.registry import METHODS, Method, find

__all__ = ["METHODS", "Method", "asymmetric", "bdd", "consistency", "find", "lift", "metaexpert", "naive_bayes", "sdrl",
           "sklearn_baselines", "supervised", "vampire", "vat"]
