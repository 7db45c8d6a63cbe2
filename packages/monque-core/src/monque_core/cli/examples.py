"""Examples under the help of a command."""


def examples(*lines: str, heading: str = "Examples") -> str:
    """Give the lines as a block that is not wrapped."""
    return "\b\n" + "\n".join([f"{heading}:", *(f"  $ {line}" for line in lines)])
