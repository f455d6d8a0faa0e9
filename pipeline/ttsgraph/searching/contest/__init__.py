"""Contest of structured graphs: contenders, probes and mutations."""
