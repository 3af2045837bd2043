"""The .cube file: a header and named arrays, compressed and checked. It knows nothing of detectors."""
