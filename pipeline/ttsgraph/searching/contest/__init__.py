"""Contest of structured graphs: contenders, probes, votes of several models, and mutations."""
