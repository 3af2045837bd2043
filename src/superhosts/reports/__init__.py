"""Where results go: a table for people, files and other destinations for programs (`opening.py`)."""
