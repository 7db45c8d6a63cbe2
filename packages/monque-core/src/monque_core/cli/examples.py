"""The examples below the help of a command."""


def examples(*lines: str, heading: str = "Examples") -> str:
    """Return command lines as a block that Typer does not wrap."""
    return "\b\n" + "\n".join([f"{heading}:", *(f"  $ {line}" for line in lines)])
