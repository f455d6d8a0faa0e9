"""Entry point of `python -m lab.study`; the code is in a module that its workers can import."""

from lab.study.command import main

main()
