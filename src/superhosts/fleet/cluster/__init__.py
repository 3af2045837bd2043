"""Process many captures on a Dask cluster: the client (`run`), the cluster (`cluster`), its tasks (`tasks`)."""
