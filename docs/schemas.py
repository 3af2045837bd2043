"""JSON Schemas of rows, alert events and the dashboard's answers: `python docs/schemas.py docs/reference/schemas`.

They follow from the types that the program declares; tests compare the files with them, and real output with the files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from superhosts.output.alerts.machine import AlertEvent
from superhosts.output.schema import Row
from superhosts.ui.answers import ANSWERS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, str]:
    """Return the text of each schema by the name of its file."""
    from msgspec.json import schema

    types = {"row": Row, "alert": AlertEvent, **{f"api-{name}": kind for name, kind in ANSWERS.items()}}
    return {
        f"{name}.json": json.dumps({"$schema": DIALECT, **schema(kind)}, indent=1) + "\n"
        for name, kind in types.items()
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, text in schemas().items():
        (folder / name).write_text(text, "utf-8")
