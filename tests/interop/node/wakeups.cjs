"use strict";

// When the stand-in looks at the queue: by a change stream, by timers, by its own writes.

const DEBOUNCE = 100;
const GRACE = 200;

class WakeUps {
  #isRunning = false;
  #stream = null;
  #isConnected = false;
  #names = new Set();
  #debounce = null;
  #poll = null;
  #alarm = null;
  #alarmAt = null;

  constructor(jobs, options, look) {
    this.jobs = jobs;
    this.options = options;
    this.look = look;
  }

  start() {
    this.#isRunning = true;
    this.#watch();
    this.#lookAndWait();
  }

  async stop() {
    this.#isRunning = false;
    for (const timer of [this.#debounce, this.#poll, this.#alarm]) clearTimeout(timer);
    await this.#stream?.close();
  }

  /** Look for a job when it is due; while an alarm is set, a later one is dropped. */
  pending(name, at) {
    if (!this.#isRunning) return;
    if (at <= new Date()) {
      this.#soon(name);
      return;
    }
    if (this.#alarmAt && at >= this.#alarmAt) return;
    clearTimeout(this.#alarm);
    this.#alarmAt = at;
    this.#alarm = setTimeout(
      () => {
        this.#alarmAt = null;
        this.#lookAndWait();
      },
      Math.max(DEBOUNCE, at - Date.now() + GRACE),
    );
  }

  #watch() {
    const updated = "updateDescription.updatedFields";
    const moved = [{ [`${updated}.status`]: { $exists: true } }];
    moved.push({ [`${updated}.nextRunAt`]: { $exists: true } });
    const ofInterest = [{ operationType: "insert" }, { operationType: "update", $or: moved }];
    this.#stream = this.jobs.watch([{ $match: { $or: ofInterest } }], {
      fullDocument: "updateLookup",
    });
    this.#isConnected = true;
    this.#stream.on("change", ({ operationType, fullDocument }) => {
      const { name, status, nextRunAt } = fullDocument ?? {};
      if (operationType === "insert" || status === "pending") this.pending(name, nextRunAt);
      else if (status === "completed" || status === "failed") this.#soon(name);
    });
    // The real one connects again, after a while.
    this.#stream.on("error", () => {
      this.#isConnected = false;
    });
  }

  /** Look a little later, so that names come together; each one more puts it off. */
  #soon(name) {
    if (!this.#isRunning) return;
    this.#names.add(name);
    clearTimeout(this.#debounce);
    this.#debounce = setTimeout(() => {
      const names = new Set(this.#names);
      this.#names.clear();
      this.#lookAndWait(names);
    }, DEBOUNCE);
  }

  async #lookAndWait(names) {
    await this.look(names);
    clearTimeout(this.#poll);
    if (!this.#isRunning) return;
    const { pollInterval, safetyPollInterval } = this.options;
    this.#poll = setTimeout(
      () => this.#lookAndWait(),
      this.#isConnected ? safetyPollInterval : pollInterval,
    );
  }
}

module.exports = { WakeUps };
