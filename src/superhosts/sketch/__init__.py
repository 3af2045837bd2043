"""The sketch of a window: the bundle of its detectors, the header of its file, and queries that read files."""
