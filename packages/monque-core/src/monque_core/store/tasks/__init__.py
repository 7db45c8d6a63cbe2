"""What MongoDB is told about reactive tasks: their records, and how each of them changes."""
