"""Report: one self-contained page per profile, and all pictures of plots and graphs as files."""
