"""The sketch of one window: the bundle of its detectors, the header of its file, and questions to files."""
