"""Make the pictures of docs/guides/dashboard.md, with the fixtures of the tests: python tests/ui/web/pictures.py."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from PIL import Image

from browsing import DESK, PHONE, Visit, chromium
from dashboards import Shown, serving

FOLDER = Path(__file__).parents[3] / "docs" / "images"
PICTURES = (  # name, section, colours, size
    ("dashboard-light", "", "light", DESK),
    ("dashboard-dark", "", "dark", DESK),
    ("dashboard-host", "host/10.2.7.66", "light", {**DESK, "height": 1160}),
    ("dashboard-phone", "", "light", {**PHONE, "height": 1100}),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "profile") as context:
        shown = Shown(Path(folder))
        with serving(shown.view) as web:
            visit = Visit(context, web.url)
            for name, section, colours, size in PICTURES:
                visit.page.set_viewport_size(size)
                visit.page.emulate_media(color_scheme=colours)
                page = visit.open(section)
                page.wait_for_selector(".link.up")
                page.wait_for_selector("canvas")
                picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")  # without transparency
                picture.save(FOLDER / f"{name}.png", optimize=True)
            visit.close()
        shown.close()


if __name__ == "__main__":
    main()
