"""The response model: how right a node is given what it reads, learnt from evidence, and what it
predicts of graphs never run; and which branch answers a question best, learnt from its text.
"""
