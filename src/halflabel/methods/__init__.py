"""The methods, each one function of the data's shape and its hyper-parameters."""

from halflabel.methods import (
    angular,
    bayes,
    classic,
    lift,
    matching,
    metaexpert,
    multilabel,
    supervised,
    vampire,
    vat,
)
from halflabel.methods.registry import METHODS, Method, find

__all__ = ["METHODS", "Method", "angular", "bayes", "classic", "find", "lift", "matching", "metaexpert", "multilabel",
           "supervised", "vampire", "vat"]
