"""The methods, each one function of the data's shape and its hyper-parameters."""

from halflabel.methods import (
    angular,
    asymmetric,
    bayes,
    classic,
    lift,
    matching,
    metaexpert,
    multilabel,
    relations,
    supervised,
    vampire,
    vat,
)
from halflabel.methods.registry import METHODS, Method, find

__all__ = ["METHODS", "Method", "angular", "asymmetric", "bayes", "classic", "find", "lift", "matching", "metaexpert",
           "multilabel", "relations", "supervised", "vampire", "vat"]
