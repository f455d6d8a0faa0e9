"""`python -m lab.worlds`; what it runs stands in a module that its processes can import."""

from lab.worlds.command import main

main()
