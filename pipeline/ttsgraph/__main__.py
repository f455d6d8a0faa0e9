"""Entry point of `python -m ttsgraph`: the command line."""

from ttsgraph.cli import main

if __name__ == "__main__":
    main()
