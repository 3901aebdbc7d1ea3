"""A file for each suite: `run(bench)`, and a docstring whose first line is the title on the page."""
