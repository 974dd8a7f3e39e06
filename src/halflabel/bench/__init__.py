"""The evidence: runs of methods on corpora, kept in a folder that can be gone on with, and the report on them."""
