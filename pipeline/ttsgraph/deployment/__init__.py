"""A found graph on its way to users: its bundle, where it comes from, and when it is promoted."""
