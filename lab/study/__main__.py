"""Entry point of `python -m lab.study`; the code is where worker processes can import it."""

from lab.study.command import main

main()
