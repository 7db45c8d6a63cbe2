"use strict";

// node program.cjs <settings as JSON>
//
// Obeys lines of extended JSON on its standard input, answers each, and says what happens to its
// jobs. The end of its standard input ends it, so that it never outlives the test that started it.

const { setTimeout: sleep } = require("node:timers/promises");
const readline = require("node:readline");
const { BSON, MongoClient } = require("mongodb");
const { Queue } = require("./queue.cjs");

const { EJSON } = BSON;
const POLL_INTERVAL = 20;

function say(what, details) {
  process.stdout.write(`${EJSON.stringify({ what, ...details }, { relaxed: false })}\n`);
}

const handlers = {
  async quick() {},
  async fails(job) {
    throw new Error(`no luck with ${EJSON.stringify(job.data)}`);
  },
  async waits() {
    await mayEnd;
  },
};
let letRunsEnd;
const mayEnd = new Promise((resolve) => {
  letRunsEnd = resolve;
});

async function run(queue, handler, job) {
  say("started", { data: job.data, id: job._id });
  let owned;
  try {
    await handler(job);
    owned = await queue.complete(job);
  } catch (error) {
    owned = await queue.fail(job, error);
  }
  say(owned ? "ended" : "lost", { data: job.data, id: job._id });
}

async function work(queue, name, handler) {
  for (;;) {
    const job = await queue.claim(name);
    if (job) await run(queue, handler, job);
    else await sleep(POLL_INTERVAL);
  }
}

async function obey(queue, command) {
  switch (command.do) {
    case "enqueue":
      return queue.enqueue(command.name, command.data, command.options);
    case "schedule":
      return queue.schedule(command.cron, command.name, command.data, command.options);
    case "work":
      for (let slot = 0; slot < command.concurrency; slot++)
        work(queue, command.name, handlers[command.handler]);
      return null;
    case "end":
      letRunsEnd();
      return null;
    default:
      throw new Error(`no such command: ${command.do}`);
  }
}

async function main({ uri, database, ...options }) {
  const jobs = new MongoClient(uri).db(database).collection("monque_jobs");
  const queue = new Queue(jobs, options);
  say("ready", { recovered: await queue.initialize() });
  setInterval(() => queue.heartbeat().then(() => say("heartbeat")), options.heartbeatInterval);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { number, ...command } = EJSON.parse(line, { relaxed: false });
    obey(queue, command).then(
      (value) => say("reply", { number, value }),
      (error) => say("reply", { number, error: error.message }),
    );
  }
  process.exit(0);
}

main(JSON.parse(process.argv[2]));
