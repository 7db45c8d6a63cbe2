"""Run the command as a module: `python -m monque_core.cli`."""

from monque_core.cli.main import main

if __name__ == "__main__":
    main()
