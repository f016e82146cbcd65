'use strict';

// A program with Apache's own Node client of RocketMQ 5: what puppet.py does. puppet.js ENDPOINTS TASK prints JSON.

const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const LIMIT_MS = 60_000;
const COMMIT = 1; // of TransactionResolution
const SQL = 2; // of FilterType
const quiet = { debug() {}, info() {}, warn() {}, error() {} };
const common = { endpoints: process.argv[2], namespace: '', logger: quiet, sslEnabled: 'TLS' in process.env };

function outgoing(body, fields = {}) {
  return { topic: 'orders', body: Buffer.from(body), ...fields };
}

async function producing(options = {}) {
  const producer = new Producer({ ...common, topic: 'orders', ...options });
  await producer.startup();
  return producer;
}

async function next(consumer, invisibleMs) {
  const end = Date.now() + LIMIT_MS;
  while (Date.now() < end) {
    const [message] = await consumer.receive(1, invisibleMs);
    if (message) return message;
  }
  throw new Error('no message came');
}

const tasks = {
  async sends_and_receives() {
    const producer = await producing();
    for (let number = 0; number < 20; number++) {
      const tag = number < 19 ? 'a' : 'b';
      await producer.send(outgoing(`m${number}`, { tag, keys: [`k${number}`], properties: new Map([['own', 'x']]) }));
    }
    await producer.send(outgoing('later', { tag: 'a' }));
    const consumer = new SimpleConsumer({
      ...common,
      consumerGroup: 'simple',
      subscriptions: new Map([['orders', 'a']]),
      awaitDuration: 3000,
    });
    await consumer.startup();
    const found = [];
    const end = Date.now() + LIMIT_MS;
    while (found.length < 20 && Date.now() < end) {
      for (const message of await consumer.receive(32, 15_000)) {
        found.push([message.body.toString(), message.tag, message.keys, Object.fromEntries(message.properties)]);
        await consumer.ack(message);
      }
    }
    return found.sort((one, other) => (one[0] < other[0] ? -1 : 1));
  },

  async pushes() {
    const producer = await producing();
    for (let number = 0; number < 20; number++) {
      await producer.send(outgoing(`f${number}`, { messageGroup: `g${number % 8}` }));
    }
    const found = new Set();
    const consumer = new PushConsumer({
      ...common,
      consumerGroup: 'push',
      subscriptions: new Map([['orders', '*']]),
      messageListener: {
        async consume(message) {
          found.add(message.body.toString());
          return ConsumeResult.SUCCESS;
        },
      },
    });
    await consumer.startup();
    const end = Date.now() + LIMIT_MS;
    while (found.size < 20 && Date.now() < end) await new Promise(resolve => setTimeout(resolve, 100));
    return [...found].sort();
  },

  async ends_transactions() {
    let asked = null;
    const checker = {
      async check(message) {
        asked = message.messageId;
        return COMMIT;
      },
    };
    const producer = await producing({ checker });
    const now = producer.beginTransaction();
    await producer.send(outgoing('now'), now);
    await now.commit();
    const receipt = await producer.send(outgoing('asked'), producer.beginTransaction());
    const end = Date.now() + LIMIT_MS;
    while (asked === null && Date.now() < end) await new Promise(resolve => setTimeout(resolve, 100));
    return [20000, asked === receipt.messageId];
  },

  async settles() {
    const consumer = new SimpleConsumer({
      ...common,
      consumerGroup: 'settle',
      subscriptions: new Map([['orders', new FilterExpression('amount > 3', SQL)]]),
      awaitDuration: 3000,
    });
    await consumer.startup();
    const producer = await producing({ topics: ['orders', 'fifo'] });
    await producer.send(outgoing('small', { properties: new Map([['amount', '1']]) }));
    await producer.send(outgoing('large', { properties: new Map([['amount', '5']]) }));
    const first = await next(consumer, 300_000);
    await consumer.changeInvisibleDuration(first, 10_000);
    const again = await next(consumer, 15_000);
    await consumer.ack(again);
    await producer.send(outgoing('in order', { topic: 'fifo', messageGroup: 'g' }));
    const isRefused = await producer.send(outgoing('normal', { topic: 'fifo' })).then(() => false, () => true);
    return [...[first, again].map(each => [each.body.toString(), each.deliveryAttempt]), isRefused];
  },

  async recalls() {
    const producer = await producing();
    const receipt = await producer.send(outgoing('never', { delay: 600_000 }));
    return (await producer.recallMessage('orders', receipt.recallHandle)).messageId === receipt.messageId;
  },
};

tasks[process.argv[3]]().then(
  found => process.stdout.write(`${JSON.stringify(found)}\n`, () => process.exit(0)),
  error => {
    console.error(error);
    process.exit(1);
  }
);
