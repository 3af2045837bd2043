"""From the columns that people have (integers, text, tables) to columns of addresses."""
