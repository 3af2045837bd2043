"""Detectors: every one takes pairs and gives super hosts back, with the same verbs (see `base`)."""
