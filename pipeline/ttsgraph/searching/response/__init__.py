"""Response model: the probability that a node's answer is right given its inputs, learned from
evidence, and predictions of graphs that were never run. Also routing, learned from texts.
"""
