"""Tools for this repository's Makefile, of no use in an installed project."""
