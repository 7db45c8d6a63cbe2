"use strict";

// A stand-in for `@monque/core` 1.10.1, which the tests do not install: the same options, methods,
// events and writes, as far as the tests use them. `MONQUE_CORE=/path/to/the/package` puts the real
// one in its place.

const { EventEmitter } = require("node:events");
const { randomUUID } = require("node:crypto");
const { CronExpressionParser } = require("cron-parser");
const { ObjectId } = require("mongodb");
const { WakeUps } = require("./wakeups.cjs");

const ACTIVE = { $in: ["pending", "processing"] };
const CLAIM = { lockedAt: "", claimedBy: "", lastHeartbeat: "" };
const INDEXES = [
  { key: { status: 1, nextRunAt: 1 } },
  {
    key: { name: 1, uniqueKey: 1 },
    unique: true,
    partialFilterExpression: { uniqueKey: { $exists: true }, status: ACTIVE },
  },
  { key: { name: 1, status: 1 } },
  { key: { createdAt: -1, _id: -1 } },
  { key: { updatedAt: -1, _id: -1 } },
  { key: { nextRunAt: -1, _id: -1 } },
  { key: { claimedBy: 1, status: 1 } },
  { key: { lastHeartbeat: 1, status: 1 } },
  { key: { name: 1, status: 1, nextRunAt: 1, claimedBy: 1 } },
  { key: { status: 1, lockedAt: 1, lastHeartbeat: 1 } },
];
const DEFAULTS = {
  collectionName: "monque_jobs",
  pollInterval: 1000,
  safetyPollInterval: 30_000,
  maxRetries: 10,
  baseRetryInterval: 1000,
  maxBackoffDelay: 86_400_000,
  shutdownTimeout: 30_000,
  workerConcurrency: 5,
  lockTimeout: 1_800_000,
  heartbeatInterval: 30_000,
};
const JITTER = 0.25;

class Monque extends EventEmitter {
  #workers = new Map();
  #running = new Map();
  #isRunning = false;
  #isPolling = false;
  #mustPollAgain = false;
  #heartbeats = null;
  #drained = null;

  constructor(db, options) {
    super();
    this.options = { schedulerInstanceId: randomUUID(), ...DEFAULTS, ...options };
    this.jobs = db.collection(this.options.collectionName);
    this.wakeUps = new WakeUps(this.jobs, this.options, (names) => this.#poll(names));
  }

  async initialize() {
    const { heartbeatInterval, lockTimeout, schedulerInstanceId } = this.options;
    await this.jobs.createIndexes(INDEXES);
    const { modifiedCount } = await this.jobs.updateMany(
      { status: "processing", lockedAt: { $lt: new Date(Date.now() - lockTimeout) } },
      { $set: { status: "pending", updatedAt: new Date() }, $unset: CLAIM },
    );
    if (modifiedCount > 0) this.emit("stale:recovered", { count: modifiedCount });
    const alive = await this.jobs.findOne({
      claimedBy: schedulerInstanceId,
      status: "processing",
      lastHeartbeat: { $gte: new Date(Date.now() - 2 * heartbeatInterval) },
    });
    if (alive) throw new Error(`schedulerInstanceId "${schedulerInstanceId}" is in use`);
  }

  register(name, handler, { concurrency = this.options.workerConcurrency } = {}) {
    checkName(name);
    this.#workers.set(name, { handler, concurrency, active: 0 });
  }

  start() {
    this.#isRunning = true;
    this.#heartbeats = setInterval(() => this.#heartbeat(), this.options.heartbeatInterval);
    this.wakeUps.start();
  }

  /** End heartbeats and claims, then wait for what runs. */
  async stop() {
    clearInterval(this.#heartbeats);
    this.#isRunning = false;
    await this.wakeUps.stop();
    if (this.#running.size === 0) return;
    const drained = new Promise((resolve) => {
      this.#drained = resolve;
    });
    const timeout = new Promise((resolve) => {
      setTimeout(resolve, this.options.shutdownTimeout, "timeout");
    });
    if ((await Promise.race([drained, timeout])) === "timeout")
      this.emit("job:error", { error: new Error("the jobs did not end in time") });
  }

  enqueue(name, data, { runAt, uniqueKey } = {}) {
    return this.#store({ name, data, nextRunAt: runAt ?? new Date() }, uniqueKey);
  }

  async schedule(cron, name, data, { uniqueKey } = {}) {
    const job = { name, data, nextRunAt: nextTick(cron), repeatInterval: cron };
    return this.#store(job, uniqueKey);
  }

  /** Make a job pending that failed or was cancelled, or throw. */
  async retryJob(id) {
    const now = new Date();
    const job = await this.jobs.findOneAndUpdate(
      { _id: new ObjectId(id), status: { $in: ["failed", "cancelled"] } },
      {
        $set: { status: "pending", failCount: 0, nextRunAt: now, updatedAt: now },
        $unset: { ...CLAIM, failReason: "" },
      },
      { returnDocument: "after" },
    );
    if (!job) throw new Error("there is no such job to retry");
    this.wakeUps.pending(job.name, job.nextRunAt);
    return job;
  }

  async #store(job, uniqueKey) {
    checkName(job.name);
    if (uniqueKey !== undefined) checkKey(uniqueKey);
    const now = new Date();
    const document = { ...job, status: "pending", failCount: 0, createdAt: now, updatedAt: now };
    if (uniqueKey === undefined) {
      const { insertedId } = await this.jobs.insertOne(document);
      document._id = insertedId;
      this.wakeUps.pending(job.name, job.nextRunAt);
      return document;
    }
    // Of two at once, one may end with error 11000, which is for the caller to deal with.
    const stored = await this.jobs.findOneAndUpdate(
      { name: job.name, uniqueKey, status: ACTIVE },
      { $setOnInsert: { ...document, uniqueKey } },
      { upsert: true, returnDocument: "after" },
    );
    if (stored.status === "pending") this.wakeUps.pending(stored.name, stored.nextRunAt);
    return stored;
  }

  /** Fill the free slots; a poll that comes meanwhile is made up for by one of all names. */
  async #poll(names) {
    if (!this.#isRunning) return;
    if (this.#isPolling) {
      this.#mustPollAgain = true;
      return;
    }
    this.#isPolling = true;
    try {
      do {
        this.#mustPollAgain = false;
        for (const [name, worker] of this.#workers) {
          if (names && !names.has(name)) continue;
          const free = Math.max(0, worker.concurrency - worker.active);
          await Promise.all(Array.from({ length: free }, () => this.#take(name, worker)));
        }
        names = undefined;
      } while (this.#mustPollAgain && this.#isRunning);
    } finally {
      this.#isPolling = false;
    }
  }

  async #take(name, worker) {
    if (!this.#isRunning) return;
    const job = await this.#claim(name);
    if (!job) return;
    if (!this.#isRunning) {
      await this.#end(job, { status: "pending" }, {});
      return;
    }
    worker.active += 1;
    this.#running.set(job._id.toString(), job);
    this.#run(job, worker);
  }

  /** Claim the job that has been due for longest, whatever its `claimedBy` says. */
  #claim(name) {
    const now = new Date();
    return this.jobs.findOneAndUpdate(
      { name, status: "pending", nextRunAt: { $lte: now } },
      {
        $set: {
          status: "processing",
          claimedBy: this.options.schedulerInstanceId,
          lockedAt: now,
          lastHeartbeat: now,
          heartbeatInterval: this.options.heartbeatInterval,
          updatedAt: now,
        },
      },
      { sort: { nextRunAt: 1 }, returnDocument: "after" },
    );
  }

  async #run(job, worker) {
    this.emit("job:start", job);
    try {
      await worker.handler(job);
      const stored = await this.#complete(job);
      if (stored) this.emit("job:complete", { job: stored });
    } catch (error) {
      const stored = await this.#fail(job, error);
      if (stored) this.emit("job:fail", { job: stored, error });
    } finally {
      worker.active -= 1;
      this.#running.delete(job._id.toString());
      if (this.#running.size === 0) this.#drained?.();
    }
  }

  async #complete(job) {
    const next = job.repeatInterval
      ? { status: "pending", nextRunAt: nextTick(job.repeatInterval), failCount: 0 }
      : { status: "completed" };
    const stored = await this.#end(job, next, { failReason: "" });
    if (stored && job.repeatInterval) this.wakeUps.pending(stored.name, stored.nextRunAt);
    return stored;
  }

  #fail(job, error) {
    const failCount = Number(job.failCount) + 1;
    const next = { failCount, failReason: error.message, status: "failed" };
    if (failCount < this.options.maxRetries) {
      next.status = "pending";
      next.nextRunAt = new Date(Date.now() + this.#backoff(failCount));
    }
    return this.#end(job, next, {});
  }

  #backoff(failCount) {
    const { baseRetryInterval, maxBackoffDelay } = this.options;
    const delay = Math.min(2 ** failCount * baseRetryInterval, maxBackoffDelay);
    const spread = 1 + JITTER * (2 * Math.random() - 1);
    return Math.min(Math.round(delay * spread), maxBackoffDelay);
  }

  /** Write how a run ended; null if the job is no longer ours. */
  #end(job, changes, dropped) {
    return this.jobs.findOneAndUpdate(
      { _id: job._id, status: "processing", claimedBy: this.options.schedulerInstanceId },
      { $set: { ...changes, updatedAt: new Date() }, $unset: { ...CLAIM, ...dropped } },
      { returnDocument: "after" },
    );
  }

  async #heartbeat() {
    const now = new Date();
    await this.jobs.updateMany(
      { claimedBy: this.options.schedulerInstanceId, status: "processing" },
      { $set: { lastHeartbeat: now, updatedAt: now } },
    );
  }
}

function nextTick(cron) {
  return CronExpressionParser.parse(cron, { currentDate: new Date() }).next().toDate();
}

function checkName(name) {
  if (name.length > 255 || !/^[^\s\p{Cc}]+$/u.test(name)) throw new Error(`not a name: ${name}`);
}

function checkKey(key) {
  if (key.length > 1024 || !key.trim() || /\p{Cc}/u.test(key)) throw new Error(`not a key: ${key}`);
}

module.exports = { Monque };
