"""What a reactive task is: its options, its records and the outcomes of its runs.

`definition` turns the arguments of `reactive()` into a `Definition`: a `Declaration`, which is
stored and which any leader can plan, and what only the process that runs the task needs, such as
its retry policy. `filters` and `watch` check its parts. `documents` converts filters
and projections to plain BSON and to text. `record` is one stored record, `outcome` what a run means
for it; `selector` and `views` describe queries and their results. Everything here is pure: no I/O,
no clock but the one that is passed in. Retry policies are those of jobs, `jobs.retry`.
"""
