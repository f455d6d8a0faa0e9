"""Tests run in several processes at once, each with one thread for linear algebra: more would spin
while they wait for each other. NumPy reads it when it is imported, so it stands here; what tests
start has it, too.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"
