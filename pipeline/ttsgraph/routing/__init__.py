"""Which branch of a graph answers a question, by its text: the decision, and how it is learnt."""
