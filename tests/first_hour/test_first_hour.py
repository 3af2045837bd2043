"""Every command of the cookbook gives the answer that the cookbook shows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from first_hour.cookbook import PAGE, PROMPT, Question, fill, page, read_questions
from first_hour.office import FOLDER, captures

pytestmark = pytest.mark.slow

QUESTIONS = read_questions()


@pytest.mark.parametrize("question", QUESTIONS, ids=[question.anchor for question in QUESTIONS])
def test_answer(question: Question, tmp_path: Path) -> None:
    assert question.answered(fill(tmp_path)) == question.lines


def test_the_page_shows_all_questions() -> None:
    assert PAGE.read_text("utf-8") == page(QUESTIONS)
    assert len(QUESTIONS) >= 20
    assert all(any(line.startswith(PROMPT) for line in question.lines) for question in QUESTIONS)


def test_the_captures_are_those_of_the_plan() -> None:
    for name, content in captures().items():
        assert gzip.decompress((FOLDER / name).read_bytes()) == content, name
