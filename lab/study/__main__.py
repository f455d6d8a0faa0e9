"""`python -m lab.study`; what it runs stands in a module that its processes can import."""

from lab.study.command import main

main()
