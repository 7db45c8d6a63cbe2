"""What a job is: its shape, its rules and its times; nothing here talks to MongoDB."""
