"""Numbers in sentences."""


def counted(count: int, what: str) -> str:
    """Count with its noun: "1 node", "2 nodes"."""
    return f"{count} {what}{'' if count == 1 else 's'}"
