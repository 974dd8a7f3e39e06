"""From texts to vectors: loading encoders, tokenising, batching, caching."""
