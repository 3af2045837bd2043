"""Super hosts of a DuckDB query, without a table of pairs in memory.

    pip install 'superhosts[tables]' duckdb
    python examples/duckdb_rows.py [flows.parquet]

A relation is read batch by batch as an Arrow stream. The answer is a table again, which DuckDB can join. Beside it is
the exact answer by SQL, which keeps every distinct pair.
"""

from __future__ import annotations

import sys

import duckdb

import superhosts as sh

MADE = """
    SELECT '10.0.' || (i % 40) || '.' || (i % 7) AS src, '172.' || (i % 97) || '.' || (i % 251) || '.9' AS dst
    FROM range(400000) AS numbers(i)
    UNION ALL
    SELECT '10.66.6.6', '192.0.' || (i // 256) || '.' || (i % 256) FROM range(20000) AS numbers(i)
"""


def main(arguments: list[str]) -> None:
    """Print the super hosts of a file with the columns src and dst, or of some rows that are made."""
    flows = duckdb.sql(f"SELECT src, dst FROM read_parquet('{arguments[0]}')" if arguments else MADE)
    cube = sh.Cube(memory="16MiB")
    cube.update(flows, host="src", peer="dst")
    found = cube.super_hosts(threshold=5000)
    print(duckdb.from_arrow(found.to_arrow()).select("host", "peers", "exact"))

    counted = "SELECT src AS host, count(DISTINCT dst) AS peers FROM flows GROUP BY host HAVING peers >= 5000"
    print(duckdb.sql(f"SELECT * FROM ({counted}) ORDER BY peers DESC"))


if __name__ == "__main__":
    main(sys.argv[1:])
