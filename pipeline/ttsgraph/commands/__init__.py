"""The commands of `ttsgraph`, a file a group; a command imports what it needs, so that --help is
there at once.
"""
