"""The `monque` command: one module per group of commands. Needs the extra `cli`."""
