"""The path of a pair: sources, windows, network, detectors, super hosts."""
