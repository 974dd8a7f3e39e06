"""Metrics, and the rules that turn scores into labels. No torch."""
