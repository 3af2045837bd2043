"""Detectors consume pairs and return super hosts. All of them have the same methods (see `base`)."""
