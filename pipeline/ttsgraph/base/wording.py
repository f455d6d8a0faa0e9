"""Numbers and errors in sentences."""


def counted(count: int, what: str) -> str:
    """Count with its noun: "1 node", "2 nodes"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def first_line(error: BaseException) -> str:
    """First line of an error's message, or its type if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
