"""Which packets' details are read, where only those of a sample of pairs are wanted (`base.Sampling`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superhosts.jit.cache import compiled
from superhosts.sources.base import Sampling
from superhosts.sources.frames.tally import SAMPLE, Tally

_U = np.uint64


class Sampled(NamedTuple):
    """What a walk needs to know of the sample."""

    start: int  # of the window whose sample it is, and its end; details of packets of other times are read
    end: int
    limit: Any  # the largest hash; uint64, like the words of the hash
    white: Any
    first: Any
    second: Any


def use_sampling(tally: Tally, sampling: Sampling | None) -> None:
    """Note in a tally what the sample is now. It only shrinks, so that what is read later has all that it needs."""
    if sampling is not None:
        start, end, limit = sampling.limit
        tally[SAMPLE], tally[SAMPLE + 1] = start, end
        tally[SAMPLE + 2 : SAMPLE + 6] = np.array([limit, *sampling.words], np.uint64).view(np.int64)


@compiled
def sampled_of(tally: Tally) -> Sampled:
    """Return what is noted in a tally."""
    words = tally[SAMPLE + 2], tally[SAMPLE + 3], tally[SAMPLE + 4], tally[SAMPLE + 5]
    return Sampled(tally[SAMPLE], tally[SAMPLE + 1], _U(words[0]), _U(words[1]), _U(words[2]), _U(words[3]))


@compiled
def is_sampled(src: np.uint32, dst: np.uint32, time: Any, sampled: Sampled) -> bool:
    """Return True if the details of a packet of IPv4 are needed."""
    x = (_U(min(src, dst)) << _U(32) | _U(max(src, dst))) ^ sampled.white  # `hashing.mangle64`; a tally has no key
    x = (x ^ (x >> _U(32))) * sampled.first
    x = (x ^ (x >> _U(29))) * sampled.second
    hashed = x ^ (x >> _U(32))
    return bool((hashed <= sampled.limit) | (time < sampled.start) | (time >= sampled.end))
