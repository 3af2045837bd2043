"""Many sites, one answer: edges make sketches, links carry them, a hub merges them and reports every window.

In: captures at edges; out: reports of the hub, and sketches in an archive or for an upstream hub. Read `hub.py` and
`edge.py` first. The data's path: `edge` scans into `spool`; `filelink` (with `filestore`) or `nats` carries sketches,
named by `names`, to the hub, which answers with receipts (`link`); `intake` checks them, `store` keeps them, `union`
merges them, `report` makes rows of the union, `slidingwindows` makes windows of panes. Besides: `archive`, `backup`,
`clock` (is this machine's clock plausible?), `sites` (what is known of each site, and how much it may send).

Delivery is at least once and merging is idempotent: an edge removes a sketch only when it has the hub's receipt, a hub
gives the receipt when the sketch is on its disk, and a position is written after the spool. `batch` runs on Dask.
"""
