"""The methods, each one function of the data's shape and its hyper-parameters."""

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
