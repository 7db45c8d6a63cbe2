"""What is stored of reactive tasks: their records, and the state of the planner.

Each source collection has a collection of records, `<collection>_tasks`, with one record per task
and document. `plan_writer` inserts and updates records when documents change, by an aggregation
that ends in `$merge` (`plan_updates`). `queue` claims due records, `outcomes` renews claims and
writes how runs end, and `transitions` contains the filter and update of each status change.
`record_cleanup` deletes records of documents that are gone. `listing` and `statistics` read.

`planner_state` and `declarations` keep the declared tasks, reconciliations, resume tokens and
parked documents in the meta collection. `source_collections` reads what the application writes.
`store` puts them together. Field names, filters and updates of records occur only here.
"""
