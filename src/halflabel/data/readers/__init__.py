"""Readers: files of many formats become tables of texts and labels."""
