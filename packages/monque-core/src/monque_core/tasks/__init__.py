"""What a reactive task is: its options, records and outcomes; nothing here talks to MongoDB."""
