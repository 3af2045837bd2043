"""Where results go: a table for people, and files for programs; all take the rows of `base`."""
