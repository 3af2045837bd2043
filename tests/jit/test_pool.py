"""Memory of large arrays that is used again."""

from __future__ import annotations

import gc

import numpy as np

from superhosts.jit.memory import LEAST_REUSED, Reuse, new_words

WORDS = LEAST_REUSED // 8


def test_arrays_are_used_again_while_somebody_wants_it() -> None:
    reuse = Reuse(2)
    first = new_words((WORDS // 4, 4), cleared=False)
    assert (first.shape, first.dtype, first.flags.aligned, first.flags.writeable) == ((WORDS // 4, 4), "u8", True, True)
    first[:] = 7
    view = first[3:5]
    del first
    second = new_words((WORDS,), cleared=False)
    assert not second.any()  # The view still has the memory of the first one.
    del second, view
    gc.collect()
    third, fourth = new_words((WORDS,), cleared=False), new_words((WORDS,), cleared=False)
    assert sorted([int(third.sum()), int(fourth.sum())]) == [0, 7 * WORDS]
    lender = Reuse.lender(LEAST_REUSED)
    assert lender is not None
    assert lender.made == 2
    del reuse
    gc.collect()
    assert Reuse.lender(LEAST_REUSED) is None
    third[:] = 1  # What was lent stays.
    assert new_words((WORDS,), cleared=False).shape == (WORDS,)


def test_no_more_memory_is_kept_than_was_asked_for() -> None:
    reuse = Reuse(2)
    arrays = [new_words((WORDS,), cleared=False) for _ in range(5)]
    arrays.clear()
    gc.collect()
    assert len(reuse._lenders[LEAST_REUSED]._free) == 2


def test_small_arrays_are_not_lent() -> None:
    reuse = Reuse(2)
    assert new_words((5, 7), cleared=False).shape == (5, 7)
    assert new_words((5, 7), cleared=False).dtype == np.uint64
    assert not reuse._lenders
