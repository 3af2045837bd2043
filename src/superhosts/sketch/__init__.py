"""The sketch of a window: the detectors of its parts, its notes, and a sample of its pairs.

`sketch.py` comes first: a `Sketch` takes detectors or .cube files, merges them, and answers as one detector does.
`files.py` asks questions of files without loading them, `unanswered.py` is the difference of two parts, and
`evidence/` samples pairs and says what the peers of a host look like.
"""
