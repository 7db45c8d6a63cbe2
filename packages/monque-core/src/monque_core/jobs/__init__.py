"""What a job is: its fields, its due times and what follows a run.

`fields` is the table of all fields of a job; `draft` turns the arguments of `enqueue` into a `Job`.
`cron` computes the next run of a schedule.
`outcome` decides what a success or failure means for a job: completed, retried by a `Retry`,
failed, or moved to the next tick. `selector`, `cursor` and `views` describe queries and their
results. Everything here is pure: no I/O, no clock but the one that is passed in.
"""
