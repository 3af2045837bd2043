"""Turns of a site's jobs."""

from __future__ import annotations

import asyncio

from superhosts.fleet.nats.receive import Jobs


def test_of_a_site_one_job_runs_at_a_time_even_if_the_next_one_has_not_woken_yet() -> None:
    jobs, running, most = Jobs(), 0, 0

    async def work() -> None:
        nonlocal running, most
        for _ in range(3):  # takes the next turn at once, before whoever waits for it wakes
            async with jobs.turn("hand in", "ams"):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0)
                running -= 1

    async def main() -> None:
        for _ in range(3):
            jobs.start(work())
        await jobs.finish()

    asyncio.run(main())
    assert most == 1


def test_sites_and_purposes_do_not_wait_for_each_other_and_nothing_remains_of_a_turn() -> None:
    async def main() -> None:
        jobs = Jobs()
        async with jobs.turn("hand in", "ams"), jobs.turn("hand in", "fra"), jobs.turn("ask", "ams"):
            assert len(jobs.turns) == 3
        assert not jobs.turns

    asyncio.run(main())


def test_a_job_that_is_cancelled_while_it_waits_leaves_the_turn_to_the_others() -> None:
    async def main() -> None:
        jobs = Jobs()

        async def wait() -> None:
            async with jobs.turn("hand in", "ams"):
                pass

        async with jobs.turn("hand in", "ams"):
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting})
            assert len(jobs.turns) == 1
        assert not jobs.turns

    asyncio.run(main())
