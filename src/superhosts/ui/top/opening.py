"""Loads the screen, or says what is missing for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from superhosts.errors import MissingExtraError

if TYPE_CHECKING:
    from superhosts.ui.top.app import TopApp


def load_app() -> type[TopApp]:
    """Return the program. Raise MissingExtraError if Textual is not installed."""
    try:
        import textual  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("superhosts top", "top") from error
    from superhosts.ui.top.app import TopApp

    return TopApp
