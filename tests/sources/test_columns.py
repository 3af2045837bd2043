from __future__ import annotations

import numpy as np
import pytest

from superhosts.sources.base import Wants
from superhosts.sources.frames.columns import ColumnLender, Columns


def fill(columns: Columns, value: int) -> None:
    for column in columns:
        column.fill(value)


@pytest.mark.parametrize("details", [False, True])
@pytest.mark.parametrize("group", ["", "vlan", "exporter"])
def test_columns_have_their_sizes_and_do_not_overlap(details: bool, group: str) -> None:
    columns = ColumnLender(5, 3, Wants(details, group=group)).borrow()
    more = [
        shape for is_wanted in (details, group == "vlan") for shape in ([(5,), (3,)] if is_wanted else [(0,), (0,)])
    ]
    assert [column.shape for column in columns] == [(5,), (5,), (5,), (3, 2), (3, 2), (3,), *more]
    for number, column in enumerate(columns):
        column.fill(number)
    assert all((column == number).all() for number, column in enumerate(columns))
    kinds = [np.uint32, np.uint32, np.int64, np.uint64, np.uint64, np.int64, np.uint64, np.uint64]
    kinds += [np.uint16, np.uint16]
    assert [column.dtype for column in columns] == kinds


def test_memory_is_lent_again_only_when_the_last_view_is_gone() -> None:
    lender = ColumnLender(100, 100)
    first = lender.borrow()
    fill(first, 1)
    place = first.time4.ctypes.data
    part = first.time4[10:20][:5]
    del first
    second = lender.borrow()
    assert second.time4.ctypes.data != place  # somebody still has a part of it
    fill(second, 2)
    assert part.tolist() == [1] * 5
    del part
    assert lender.borrow().time4.ctypes.data == place
