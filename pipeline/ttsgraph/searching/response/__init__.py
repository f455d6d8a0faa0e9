"""Response model: it learns from evidence how likely a node's answer is to be right given its
inputs, and predicts the accuracy of graphs that were never run. Also routing, learned from the text
of questions.
"""
