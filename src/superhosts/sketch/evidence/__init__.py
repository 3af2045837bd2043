"""Evidence: what the pairs of a super host look like, from a sample of all pairs of a window.

| file | what it knows |
|---|---|
| `observations.py` | what one packet says about its pair, and how many distinct things were seen, in 64 bits |
| `sample.py` | which pairs are in the sample, while its window is open and once it is closed, merged and saved |
| `summary.py` | the sampled pairs of one host in a few numbers |
| `patterns.py` | the table of rules that names what such numbers look like |

The sample has the pairs with the smallest keyed hashes (bottom-k), so it depends only on the set of pairs. Everything
that is noted about a pair is combined by OR or by the smaller number. Samples of sites and of panes therefore merge
exactly, in any order, as often as one likes.

A sample says who talked to whom. It is kept only where somebody asks for it.
"""
