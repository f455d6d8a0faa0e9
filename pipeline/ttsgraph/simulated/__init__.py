"""The simulated pool: a client whose answers come from a stochastic model, and that model."""
