"""Super hosts of a Polars data frame, and of a file that is larger than memory.

    pip install 'superhosts[tables]'
    python examples/polars_rows.py [flows.parquet]

Addresses may be text or integers. A scan of Polars that does not fit in memory is collected in batches, and every batch
is added to the same cube: the result does not depend on how rows are divided.
"""

from __future__ import annotations

import sys

import polars as pl

import superhosts as sh


def make() -> pl.DataFrame:
    """Return flows of forty quiet hosts and one that scans."""
    number = pl.int_range(0, 60_000)
    quiet = pl.select(src=pl.format("10.0.{}.7", number % 40), dst=pl.format("198.51.100.{}", number % 200))
    scanner = pl.select(
        src=pl.lit("10.66.6.6"),
        dst=pl.format("192.0.{}.{}", number.slice(0, 20_000) // 256, number.slice(0, 20_000) % 256),
    )
    return pl.concat([quiet, scanner])


def main(arguments: list[str]) -> None:
    """Print the super hosts of a file with the columns src and dst, or of some rows that are made."""
    flows = pl.scan_parquet(arguments[0]).select("src", "dst") if arguments else make().lazy()
    cube = sh.Cube(memory="16MiB")
    rows = flows.select(pl.len()).collect().item()
    for start in range(0, rows, 1_000_000):
        cube.update(flows.slice(start, 1_000_000).collect(), host="src", peer="dst")
    found = cube.super_hosts(threshold=1000)
    print(pl.DataFrame(found).select("host", "peers", "exact"))


if __name__ == "__main__":
    main(sys.argv[1:])
