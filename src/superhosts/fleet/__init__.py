"""Many places, one answer: edges that make sketches, links that carry them, a hub that merges them."""
