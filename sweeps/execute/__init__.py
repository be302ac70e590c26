"""A sweep carried out: units of work, threads or Dask, progress."""
