"""What MongoDB is told: every field name, filter, update and index of monque lives here."""
