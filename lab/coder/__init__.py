"""Recording of the answers that the models of profile `coder` give, so that searches over these
answers need no model.
"""
