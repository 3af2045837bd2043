"""Every kind of traffic: one file per kind, all with the shape of `base.Source`."""
