"""Many captures on a Dask cluster: the client (`run`), the cluster (`cluster`), what workers do (`tasks`)."""
