"""What is known of a host besides its traffic: a label of the operator's own, its name, its network and its country.

| file | what it knows |
|---|---|
| `inventory.py` | labels of addresses and prefixes, from a CSV file |
| `maxmind.py` | autonomous systems and countries, from files in MaxMind's format |
| `reversedns.py` | names by reverse DNS, looked up in the background |
| `annotator.py` | all of these, for rows |

Nothing here changes which hosts are found, or waits for a network longer than a moment.
"""
