"""Every snippet of docs/guides/python.md and of the README runs, and prints what the page shows."""

from __future__ import annotations

import pytest

from docs.pythonpage import PAGES, is_as_shown, rewritten, run, sections

pytestmark = pytest.mark.slow

SECTIONS = [section for page in PAGES for section in sections(page.read_text(), page.name)]
PAGE_OF_TWO = """# Page

## One

```python
x = 1
print(x, 2.5)
```

```text
1 …
```

<!-- not run: it would fail -->
```python
raise ValueError
```

## Two

```python
y = 2
```

```python
print(y)
print(open("office.pcap.gz", "rb").read(2))
```

"""


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: f"{section.page}: {section.title}")
def test_snippets_print_what_the_page_shows(section, tmp_path):
    if section.missing:
        pytest.skip(f"needs {', '.join(section.missing)}")
    for snippet, printed in zip(section.snippets, run(section, tmp_path), strict=True):
        assert is_as_shown(printed, snippet.shown), f"line {snippet.line}:\n{snippet.code}\nprints:\n{printed}"


def test_the_page_has_sections_with_snippets():
    assert len(SECTIONS) >= 7
    assert all(section.snippets for section in SECTIONS)
    assert {section.page for section in SECTIONS} == {"python.md", "README.md"}


def test_a_page_is_written_with_what_its_snippets_print():
    page = rewritten(PAGE_OF_TWO)
    assert "```text\n1 …\n```" in page
    assert page.startswith(PAGE_OF_TWO.rstrip())
    assert page.endswith("```\n\n```text\n2\n...\n```\n".replace("...", r"b'\x1f\x8b'") + "\n")
    assert rewritten(page) == page


def test_a_snippet_that_fails_is_found(tmp_path):
    (section,) = sections("## One\n\n```python\nimport superhosts as sh\n\nsh.Cub()\n```\n")
    with pytest.raises(AssertionError, match=r'page\.md", line 6'):
        run(section, tmp_path)
    assert not is_as_shown("2\n", "1\n")
    assert is_as_shown("", "")
    assert not is_as_shown("2\n", "")
