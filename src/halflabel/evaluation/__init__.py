"""Metrics, and the decision rules of multi-label models. No torch."""
