"""The `monque` command. Needs the extra `cli`.

What lives here: `main` is the entry point and maps exceptions to exit codes, `app` assembles the
commands, and each command or group of commands has a module: `jobs`, `schedules`, `reactive`,
`stats`, `top`, `worker`, `doctor`, `local`. `options`, `times` and `payloads` parse what users
type; `output` and `tables` print results, and `bulk` applies one action to many jobs.

A command opens a `connection`, calls the public methods of `Monque`, and prints a table or JSON.
`doctor` runs the `*_checks` modules, which also read collections directly. `worker` imports the
`worker_target` and runs it; with `--processes` or `--reload`, `supervisor` starts and replaces
worker processes and talks to each through a `worker_channel`.

Nothing else in monque imports this package.
"""
