"""The methods; each module registers a method or a family of methods when it is imported."""

from halflabel.methods import baselines, bdd, consistency, lift, metaexpert, sdrl, vampire
from halflabel.methods.registry import METHODS, Method, find

__all__ = ["METHODS", "Method", "baselines", "bdd", "consistency", "find", "lift", "metaexpert", "sdrl", "vampire"]
