"""Readers of files, folders and frames: one module for each family of formats, which registers itself.

To add a format, add a module here that calls `formats.register_format`; see `excel` for an example.
"""
