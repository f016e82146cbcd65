'use strict';

// The JavaScript client `ali-ons` as a program that does what its standard input says; see clients.py.
//
// One command a line, words with tabs between: the verb, then name=value. Answers and deliveries are lines of JSON;
// deliveries name their consumer.

const readline = require('readline');
const { Consumer, Producer, Message } = require('ali-ons');

const nameSrv = process.argv[2];
const quiet = { debug() {}, info() {}, warn() {}, error(...words) { console.error(...words); } };
const consumers = new Map();
let producer = null;
let names = 0;

const verbs = {
  async produce(given) {
    if (producer) await producer.close().catch(complain);
    producer = new Producer({ ...settings(given, 'producer'), producerGroup: given.group });
    producer.on('error', complain);
    await producer.ready();
    return { started: true };
  },

  async sync(given) {
    return outcome(await producer.send(message(given)));
  },

  /** A `send` is a promise, which calls back. */
  async(given) {
    return producer.send(message(given)).then(outcome);
  },

  /** To a queue of the caller's choice: `send` has none, so this takes the step below it. */
  async placed(given) {
    const queues = (await producer.tryToFindTopicPublishInfo(given.topic)).messageQueueList;
    const found = queues.find(queue => queue.queueId === Number(given.shard) % queues.length);
    return outcome(await producer.sendKernelImpl(message(given), found));
  },

  /** By a sharding key, which is this client's way to keep an order. */
  async ordered(given) {
    const made = message(given);
    made.shardingKey = given.shard;
    return outcome(await producer.send(made));
  },

  /** A push consumer that refuses the first `fail` deliveries of each message. */
  async consume(given) {
    const consumer = new Consumer({
      ...settings(given, given.consumer),
      consumerGroup: given.group,
      consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
      isBroadcast: given.mode === 'broadcasting',
      maxReconsumeTimes: Number(given.retries || 16),
    });
    consumer.on('error', complain);
    const deliveries = new Map();
    const filter = given.type ? { expressionType: given.type, subString: given.expression } : given.expression;
    consumer.subscribe(given.topic, filter, async received => {
      say({ consumer: given.consumer, ...describe(received) });
      const body = received.body.toString();
      deliveries.set(body, (deliveries.get(body) || 0) + 1);
      if (deliveries.get(body) <= Number(given.fail || 0)) throw new Error('refused'); // ACTION_RETRY works once only
    });
    await consumer.ready();
    consumers.set(given.consumer, consumer);
    return { started: true };
  },

  async stop(given) {
    await consumers.get(given.consumer).close();
    consumers.delete(given.consumer);
    return { stopped: true };
  },
};

/** Each client is an instance of its own, as if it were alone in its process. */
function settings(given, name) {
  return {
    nameSrv,
    httpclient: {}, // asked for name servers only where none are given
    logger: quiet,
    instanceName: `${name}-${++names}`,
    namespace: given.namespace || '',
    accessKeyId: given.access,
    accessKeySecret: given.secret,
    // A start that missed a route or a member would wait 30 s and 10 s for the next.
    pollNameServerInteval: 1000,
    heartbeatBrokerInterval: 1000,
    rebalanceInterval: 1000,
    sendMsgTimeout: 10000,
  };
}

function message(given) {
  const made = new Message(given.topic, given.tags || '', given.body.repeat(Number(given.times || 1)));
  if (given.keys) made.keys = given.keys.split(' ');
  if (given.colour) made.properties.colour = given.colour;
  if (given.delay) made.delayTimeLevel = Number(given.delay);
  for (const name of Object.keys(given)) {
    if (name.startsWith('property.')) made.properties[name.slice('property.'.length)] = given[name];
  }
  return made;
}

function describe(received) {
  return {
    topic: received.topic,
    body: received.body.toString(),
    tags: received.tags || '',
    keys: received.keys || '',
    colour: received.properties.colour || '',
    queue: received.queueId,
    offset: Number(received.queueOffset),
    retries: received.reconsumeTimes,
    born: Number(received.bornTimestamp),
    stored: Number(received.storeTimestamp),
    size: received.storeSize,
    id: received.properties.UNIQ_KEY || received.originMessageId || received.msgId, // it gives no id of its own
  };
}

function outcome(result) {
  return {
    status: result.sendStatus.replace('SEND_', ''),
    id: result.msgId,
    offset_id: result.offsetMsgId || result.msgId,
    queue: Number(result.messageQueue.queueId),
    offset: Number(result.queueOffset),
  };
}

function complain(error) {
  console.error(error && error.stack);
}

function say(event) {
  process.stdout.write(JSON.stringify(event) + '\n');
}

async function obey(line) {
  const [ verb, ...words ] = line.split('\t');
  const given = {};
  for (const word of words) {
    const at = word.indexOf('=');
    given[word.slice(0, at)] = word.slice(at + 1);
  }
  try {
    if (!verbs[verb]) throw new Error(`no verb ${verb}`);
    say(await verbs[verb](given));
  } catch (error) {
    say({ error: error.message });
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) await obey(line);
  for (const consumer of consumers.values()) await consumer.close();
  process.exit(0);
}

main();
