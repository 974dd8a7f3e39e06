"""Texts to vectors: loading, tokenising, batching and caching; the only room that knows transformers."""
