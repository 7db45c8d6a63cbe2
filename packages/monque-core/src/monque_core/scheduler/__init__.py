"""What runs when: from free slots to written outcomes, for any source of work.

An `Engine` is one run of an instance, from start to stop. It has one `Pipeline` per source of
work: jobs are one source, the reactive tasks on each source collection are another. Work flows
through a pipeline in one direction:

    wakeups → dispatcher → claimer → backlog → runner → settler

`Wakeups` collects hints: the `Listener` reads the change stream, the `Lookahead` asks what becomes
due, and polling covers the rest. The `Dispatcher` loops: it takes a snapshot of its `ClaimState`,
`plan_claim` decides how much to claim of which name, the `Claimer` executes the plan, and runs
start as long as slots are free. Jobs claimed beyond the free slots wait in the `Backlog`. The
`Runner` calls middleware and handlers. The `Settler` writes outcomes in groups and keeps each until
it is written.

Beside the pipeline, `Heartbeat` renews claims, `Recovery` makes the jobs of dead instances pending
again, `Maintenance` repairs indexes and `Retention` deletes old jobs. All of them are a `Loop`:
started and stopped by the engine, with nothing left behind.

No module here knows a field name of MongoDB; the store does.
"""
