"""Serves a model over HTTP, by two protocols of other model servers."""
