"""Scores any number of texts into a folder of shards, by several engines; a killed job resumes."""
