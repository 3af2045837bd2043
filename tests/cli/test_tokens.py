"""Files with the token of a dashboard, for the program that asks for it and the one that brings it."""

from __future__ import annotations

from pathlib import Path

import pytest

from superhosts.cli._keys import read_token
from superhosts.cli._options import DashboardOptions
from superhosts.cli.top import open_feed
from superhosts.cli.usage.traffic import Top
from superhosts.cli.web import Dashboard
from superhosts.errors import UsageError
from superhosts.ui.web.access import LEAST_TOKEN


def ask_for(file: Path) -> None:
    """Read the file as `--web` does."""
    Dashboard(DashboardOptions(web=":0", web_token_file=file))


def bring(file: Path) -> None:
    """Read the file as `superhosts top` does."""
    open_feed(Top(inputs=["http://127.0.0.1:9"], token_file=file))


@pytest.mark.parametrize("read", [ask_for, bring])
@pytest.mark.parametrize("content", [b"", b"\n", b"one two " * 4, b"\xff\xfe" * 20, b"x" * 9000, b"a\x1bb" * 20])
def test_files_without_a_token(tmp_path: Path, content: bytes, read: object) -> None:
    assert callable(read)
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(UsageError, match=r"token-file .*/token: holds no token: a token is one word"):
        read(tmp_path / "token")


@pytest.mark.parametrize("read", [ask_for, bring])
def test_files_that_cannot_be_read(tmp_path: Path, read: object) -> None:
    assert callable(read)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read(tmp_path)


def test_a_missing_file_is_made_by_the_one_that_asks_alone(tmp_path: Path) -> None:
    ask_for(tmp_path / "none")
    with pytest.raises(UsageError, match=r"--token-file .*: cannot be read: No such file"):
        bring(tmp_path / "none")


def test_a_token_that_was_chosen_is_long_enough(tmp_path: Path) -> None:
    for length in (LEAST_TOKEN - 1, LEAST_TOKEN):
        file = tmp_path / "token"
        file.write_text("x" * length + "\n")
        assert read_token(file, "--token-file") == "x" * length
        if length < LEAST_TOKEN:
            with pytest.raises(UsageError, match=f"at least {LEAST_TOKEN} characters; without the file, one is made"):
                ask_for(file)
        else:
            ask_for(file)
