"""Measurements, paired with peers that do the same work: ``make bench``; README.md says how to add one."""
