"""A self-checking demonstration: `python -m monque_core.demo`.

`demo` starts a MongoDB server and one `Monque`, runs the jobs of `workload` for some seconds, and
refreshes a view several times per second: `view` prints lines, `live_view` draws a screen with
rich. `metrics` listens to events for rates and latencies. `audit` counts the runs of every job and
compares them with the collection at the end; the exit code is 1 if a job was lost or ran twice.

It uses only the public API of monque and a temporary `LocalMongo`.
"""
