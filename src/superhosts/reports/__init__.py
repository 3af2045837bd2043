"""Where results go: one file per destination, all with the shape of `base.Report`."""
