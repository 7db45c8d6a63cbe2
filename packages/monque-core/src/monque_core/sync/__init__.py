"""`SyncMonque`: the blocking API, for code without asyncio.

- `monque.SyncMonque` is the public class. Calls that enqueue, read or manage run in the calling
  thread, on a `blocking_api.BlockingApi`: the coroutines of `Monque` on a store that blocks, which
  therefore end without an event loop.
- Workers, listeners and `initialize()` need an event loop. `loop_owner.LoopOwner` holds the
  `Monque` and runs a `loop_thread.LoopThread` for it while it is in use, as from `start()` to
  `stop()`.
- After a fork, a `SyncMonque` that was not used before rebinds to the child process.

These modules may use everything below them, including the private methods of `Monque`.
"""
