"use strict";

// The queue as docs/reference/document-format.md describes it to other programs: the first table of
// its transitions, without what stands there in parentheses. So it stands for `@monque/core` 1.x,
// after which the options are named: one job per claim, recovery at the start alone, by `lockedAt`.

const { CronExpressionParser } = require("cron-parser");

const ACTIVE = { $in: ["pending", "processing"] };
const CLAIM = { lockedAt: "", claimedBy: "", lastHeartbeat: "" };

class Queue {
  constructor(collection, options) {
    this.jobs = collection;
    this.options = options;
  }

  /** Make the indexes, and give back what was locked too long ago; tell how many jobs that were. */
  async initialize() {
    await this.jobs.createIndexes([
      { key: { status: 1, nextRunAt: 1 } },
      {
        key: { name: 1, uniqueKey: 1 },
        unique: true,
        partialFilterExpression: { uniqueKey: { $exists: true }, status: ACTIVE },
      },
      { key: { name: 1, status: 1 } },
      { key: { claimedBy: 1, status: 1 } },
      { key: { lastHeartbeat: 1, status: 1 } },
      { key: { name: 1, status: 1, nextRunAt: 1, claimedBy: 1 } },
      { key: { status: 1, lockedAt: 1, lastHeartbeat: 1 } },
    ]);
    const threshold = new Date(Date.now() - this.options.lockTimeout);
    const { modifiedCount } = await this.jobs.updateMany(
      { status: "processing", lockedAt: { $lt: threshold } },
      { $set: { status: "pending", updatedAt: new Date() }, $unset: CLAIM },
    );
    return modifiedCount;
  }

  enqueue(name, data, { runAt, uniqueKey } = {}) {
    return this.#store({ name, data, nextRunAt: runAt ?? new Date() }, uniqueKey);
  }

  schedule(cron, name, data, { uniqueKey } = {}) {
    const job = { name, data, nextRunAt: nextTick(cron), repeatInterval: cron };
    return this.#store(job, uniqueKey);
  }

  /** Take the job that has been due for longest, or null; `exact` keeps numbers as BSON has them. */
  claim(name) {
    const now = new Date();
    return this.jobs.findOneAndUpdate(
      { name, status: "pending", nextRunAt: { $lte: now }, claimedBy: null },
      {
        $set: {
          status: "processing",
          claimedBy: this.options.instanceId,
          lockedAt: now,
          lastHeartbeat: now,
          heartbeatInterval: this.options.heartbeatInterval,
          updatedAt: now,
        },
      },
      { sort: { nextRunAt: 1 }, returnDocument: "after", promoteValues: !this.options.exact },
    );
  }

  async heartbeat() {
    const now = new Date();
    await this.jobs.updateMany(
      { claimedBy: this.options.instanceId, status: "processing" },
      { $set: { lastHeartbeat: now, updatedAt: now } },
    );
  }

  /** Write a success down; tell whether the job was still ours. */
  complete(job) {
    const next = job.repeatInterval
      ? { status: "pending", nextRunAt: nextTick(job.repeatInterval), failCount: 0 }
      : { status: "completed" };
    return this.#end(job, next, { failReason: "" });
  }

  /** Write a failure down; tell whether the job was still ours. */
  fail(job, error) {
    const { maxRetries, baseRetryInterval } = this.options;
    const failCount = Number(job.failCount) + 1;
    const next = { failCount, failReason: error.message, status: "failed" };
    if (failCount < maxRetries) {
      next.status = "pending";
      next.nextRunAt = new Date(Date.now() + 2 ** failCount * baseRetryInterval);
    }
    return this.#end(job, next, {});
  }

  async #store(job, uniqueKey) {
    const now = new Date();
    const document = { ...job, status: "pending", failCount: 0, createdAt: now, updatedAt: now };
    if (uniqueKey === undefined) {
      const { insertedId } = await this.jobs.insertOne(document);
      return { ...document, _id: insertedId };
    }
    for (;;) {
      try {
        return await this.jobs.findOneAndUpdate(
          { name: job.name, uniqueKey, status: ACTIVE },
          { $setOnInsert: { ...document, uniqueKey } },
          { upsert: true, returnDocument: "after" },
        );
      } catch (error) {
        if (error.code !== 11000) throw error;
      }
    }
  }

  async #end(job, changes, dropped) {
    const { modifiedCount } = await this.jobs.updateOne(
      { _id: job._id, status: "processing", claimedBy: this.options.instanceId },
      { $set: { ...changes, updatedAt: new Date() }, $unset: { ...CLAIM, ...dropped } },
    );
    return modifiedCount === 1;
  }
}

function nextTick(cron) {
  return CronExpressionParser.parse(cron).next().toDate();
}

module.exports = { Queue };
