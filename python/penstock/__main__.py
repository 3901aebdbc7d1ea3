"""The entry point of ``python -m penstock``, for systems on which the script ``penstock`` is not on PATH."""

from penstock.cli import main

main()
