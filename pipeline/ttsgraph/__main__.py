"""What `python -m ttsgraph` runs: the command line."""

from ttsgraph.cli import main

if __name__ == "__main__":
    main()
