"""The response model: accuracy of a node given its inputs, learned from evidence, and its
predictions of graphs never run; and routing, learned from texts.
"""
