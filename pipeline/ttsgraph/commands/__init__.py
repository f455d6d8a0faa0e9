"""Commands of `ttsgraph`, one file per group; each command imports its own dependencies, so that
--help is fast.
"""
