"""Tools of this repository that its Makefile runs, of no use to a project that has it installed."""
