"""Local model servers: preparing their weights, and describing, placing, starting, sharing and
stopping them.
"""
