"""``python -m penstock``, for where the script ``penstock`` is not on PATH."""

from penstock.cli import main

main()
