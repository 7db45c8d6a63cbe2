"""Monque without asyncio: its calls block, and its workers run on a loop in a thread of theirs."""
