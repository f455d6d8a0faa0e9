"""Tools for this repository's Makefile; they are of no use in an installed project."""
