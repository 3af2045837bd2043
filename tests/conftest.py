"""Settings for all tests."""

from hypothesis import settings

# The first call of a compiled function may compile for seconds: no test is held to a deadline.
settings.register_profile("superhosts", deadline=None, derandomize=True)
settings.load_profile("superhosts")
