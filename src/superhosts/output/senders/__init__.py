"""Destinations that send: one file for each, and what they share (`base.py`)."""
