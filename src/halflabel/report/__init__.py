"""A model for people: a report of one page, and a model card."""
