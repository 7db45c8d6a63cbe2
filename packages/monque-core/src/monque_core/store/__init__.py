"""Everything that MongoDB sees: field names, filters, updates, pipelines and indexes.

`Store` creates one object per purpose on the jobs collection and its `_meta` collection.

- Documents: `documents` turns a `Job` into a document and back, by the table in `jobs.fields`.
- In: `insert_batcher` gathers concurrent calls of `enqueue`, `inserts` writes them, `schedules`
  writes recurring jobs.
- Through: `queue` finds due jobs and claims them, `outcomes` renews claims and writes how runs
  ended, `stale_jobs` takes over the claims of dead instances, `quarantine` fails what cannot run.
  Each change of status is one function in `transitions`, which returns a filter and an update.
- Out: `listing` and `statistics` read jobs, `management` changes and deletes them, `job_stream`
  reports which jobs become due.
- Around: `indexes`, `leases`, `connectivity`, and `driver`, the only module that calls PyMongo's
  async, blocking and Motor handles.

`store.tasks` is the same for reactive tasks. This package may use `jobs` and `tasks`. It does not
decide when anything happens; that is what `scheduler` and `reactive` are for.
"""
