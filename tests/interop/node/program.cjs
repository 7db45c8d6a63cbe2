"use strict";

// node program.cjs <settings as JSON>
//
// Obeys lines of extended JSON on its standard input, answers each, and says what happens to its
// jobs. The end of its standard input ends it, so that it never outlives the test that started it.

const readline = require("node:readline");
const { CronExpressionParser } = require("cron-parser");
const { BSON, MongoClient } = require("mongodb");
const { Monque } = require(process.env.MONQUE_CORE || "./monque.cjs");

const { EJSON } = BSON;

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

/** Say what no event tells: heartbeats, and ends of runs that found their job taken. */
function watchCommands(client) {
  const meanings = new Map();
  client.on("commandStarted", ({ requestId, commandName, command }) => {
    const [update] = command.updates ?? [];
    const isHeartbeat = update?.u.$set?.lastHeartbeat && !update.u.$set.status;
    const isEnd = commandName === "findAndModify" && command.query.claimedBy && command.query._id;
    if (isHeartbeat) meanings.set(requestId, () => say("heartbeat"));
    if (isEnd)
      meanings.set(requestId, (reply) => reply.value || say("lost", { id: command.query._id }));
  });
  client.on("commandSucceeded", ({ requestId, reply }) => {
    meanings.get(requestId)?.(reply);
    meanings.delete(requestId);
  });
}

function ticks({ cron, after, count }) {
  const expression = CronExpressionParser.parse(cron, { currentDate: after, tz: "UTC" });
  return Array.from({ length: Number(count) }, () => expression.next().toDate());
}

async function obey(monque, command) {
  switch (command.do) {
    case "enqueue":
      return monque.enqueue(command.name, command.data, command.options);
    case "schedule":
      return monque.schedule(command.cron, command.name, command.data, command.options);
    case "retry":
      return monque.retryJob(command.id.toString());
    case "work":
      monque.register(command.name, handlers[command.handler], {
        concurrency: Number(command.concurrency),
      });
      return null;
    case "end":
      letRunsEnd();
      return null;
    case "stop":
      monque.stop().then(() => say("stopped"));
      return null;
    case "ticks":
      return ticks(command);
    default:
      throw new Error(`no such command: ${command.do}`);
  }
}

async function main({ uri, database, exact, ...options }) {
  const client = new MongoClient(uri, { monitorCommands: true });
  watchCommands(client);
  const monque = new Monque(client.db(database, { promoteValues: !exact }), options);
  let recovered = 0;
  monque.on("stale:recovered", ({ count }) => {
    recovered = count;
  });
  monque.on("job:start", (job) => say("started", { data: job.data, id: job._id }));
  for (const event of ["job:complete", "job:fail"])
    monque.on(event, ({ job }) => say("ended", { data: job.data, id: job._id }));
  monque.on("job:error", ({ error }) => say("error", { error: error.message }));
  await monque.initialize();
  monque.start();
  say("ready", { recovered });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { number, ...command } = EJSON.parse(line, { relaxed: false });
    obey(monque, command).then(
      (value) => say("reply", { number, value }),
      (error) => say("reply", { number, error: error.message }),
    );
  }
  process.exit(0);
}

main(JSON.parse(process.argv[2])).catch((error) => {
  say("refused", { error: error.message });
  process.exit(1);
});
