"""The version, read by the build and by `superhosts --version`."""

__version__ = "0.1.0"
