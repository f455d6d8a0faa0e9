"""The report: one self-contained page per profile; and all pictures, of plots and of graphs, as
files from what the page shows.
"""
