"""The benchmark: runs of methods on corpora, kept in a folder that can be resumed, and the report on their results."""
