"""Evidence: what the pairs of a super host look like, from a sample of all pairs of a window.

The sample has the pairs with the smallest keyed hashes (bottom-k), so it depends only on the set of pairs. Everything
that is noted about a pair is combined by OR or by the smaller number. Samples of sites and of panes therefore merge
exactly, in any order, as often as one likes.

A sample says who talked to whom. It is kept only where somebody asks for it.
"""
