"""The live view in the terminal (`superhosts top`): the answers of a view (`ui/view.py`), drawn with Textual.

`feed.py` gets the answers, here or from a web address. `hosts.py`, `pages.py` and `drawing.py` turn them into text and
know nothing of Textual. `app.py` has the program and its screens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from superhosts.errors import import_extra

if TYPE_CHECKING:
    from superhosts.ui.top.app import TopApp


def load_app() -> type[TopApp]:
    """Return the program. Raise MissingExtraError if Textual is not installed."""
    import_extra("superhosts top", "top", "textual")
    from superhosts.ui.top.app import TopApp

    return TopApp
