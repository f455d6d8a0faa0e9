"""Numbers in sentences."""


def counted(count: int, what: str) -> str:
    """ "1 node", "2 nodes"."""
    return f"{count} {what}{'' if count == 1 else 's'}"
