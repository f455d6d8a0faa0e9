"""The report: one self-contained page per profile, and every plot as SVG and PNG beside it."""
