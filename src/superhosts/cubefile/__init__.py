"""The .cube file format: a header and named arrays, compressed and checksummed. It does not depend on detectors."""
