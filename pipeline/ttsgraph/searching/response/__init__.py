"""Response model: it learns from evidence how likely a node's answer is to be right given its
inputs, and predicts graphs that were never run. Also routing, learned from the text of questions.
"""
