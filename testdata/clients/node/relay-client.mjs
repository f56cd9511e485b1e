// A client of the message relay, protocol 1.0, on Node's own fetch (18 or newer).
//
// It stands for the Node clients that are in use, and keeps their habits on
// purpose, the questionable ones too: the broker must serve them as they are.
// New clients follow PROTOCOL.md instead.
//
//   RELAY_URL            the broker, default http://127.0.0.1:19121
//   RELAY_AGENT          the agent to call as
//   RELAY_SECRET         the shared secret
//   RELAY_RETRY_DELAYS   seconds before each further try, default 2,4,8
//   RELAY_CURSOR         where the first poll begins
//
// As a command line it makes one call and prints the answer:
//
//   node relay-client.mjs send --to beta --body '{"text":"hello"}' --id job-1
//   node relay-client.mjs poll --limit 5
//
// Called as "stdin" it reads calls from standard input, a JSON object on each
// line, {"call":"send","to":"beta","body":{"text":"hello"}}, and prints a line
// for each.

import { createHmac, randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const timeout = 10_000; // milliseconds for one try

export class RelayError extends Error {
  constructor(status, error) {
    super(`${status}: ${error?.message ?? ''}`);
    this.status = status;
    this.error = error ?? {};
  }
}

export class RelayClient {
  constructor({ url, agent, secret, delays = [2, 4, 8], cursor = '' }) {
    this.url = url.replace(/\/+$/, '');
    this.agent = agent;
    this.secret = secret;
    this.delays = delays;
    this.cursor = cursor;
  }

  async handshake() {
    const info = await this.#request('GET', '/');
    if (info.protocol !== '1.0') {
      throw new RelayError(0, { code: 'protocol', message: `this broker speaks protocol ${info.protocol}, not 1.0` });
    }
    return info;
  }

  register() {
    return this.#request('POST', '/register', { agent: this.agent });
  }

  peers() {
    return this.#request('GET', '/peers');
  }

  send({ to, body, id = randomUUID(), kind, ack, reply_to, root_id, parent_id }) {
    return this.#request('POST', '/messages', {
      id, to, body, kind, ack, replyTo: reply_to, rootId: root_id, parentId: parent_id,
    });
  }

  // A limit that was not given is NaN, here and in what follows; in JSON that
  // becomes null.
  async poll({ limit } = {}) {
    const page = await this.#request('GET', `/messages?since=${encodeURIComponent(this.cursor)}&limit=${Number(limit)}`);
    if (page.messages.length > 0) this.cursor = page.cursor;
    return page;
  }

  ack({ id, status = 'ok', error }) {
    return this.#request('POST', `/messages/${id}/ack`, { status, error });
  }

  pull({ limit = NaN, lease_seconds = 600 } = {}) {
    return this.#request('POST', '/v1/pull', { limit, leaseSeconds: lease_seconds });
  }

  settle({ id, lease_id, outcome, error = null }) {
    return this.#request('POST', '/v1/ack', { messageId: id, leaseId: lease_id, outcome, error });
  }

  renew({ id, lease_id, lease_seconds = 600 }) {
    return this.#request('POST', '/v1/lease/renew', { messageId: id, leaseId: lease_id, leaseSeconds: lease_seconds });
  }

  status({ ids }) {
    return this.#request('POST', '/v1/status', { messageIds: ids });
  }

  recent({ limit = NaN } = {}) {
    return this.#request('POST', '/v1/recent', { limit });
  }

  query({ limit = NaN, ...filters } = {}) {
    return this.#request('POST', '/v1/messages/query', { ...filters, limit });
  }

  // One call, tried again while the broker may recover. The body is the same
  // each time, the message's id with it.
  async #request(method, target, value) {
    const body = value === undefined ? '' : JSON.stringify(value);
    const delays = [...this.delays];
    for (;;) {
      const { status, answer } = await this.#try(method, target, body);
      if (status >= 200 && status < 300) return answer;
      const passing = status === 0 || status >= 500 || status === 408 || status === 429;
      if (!passing || delays.length === 0) throw new RelayError(status, answer?.error);
      await new Promise((resolve) => setTimeout(resolve, delays.shift() * 1000));
    }
  }

  async #try(method, target, body) {
    let status = 0;
    try {
      const response = await fetch(this.url + target, {
        method,
        headers: this.#sign(method, target, body),
        body: body === '' ? undefined : body,
        signal: AbortSignal.timeout(timeout),
      });
      status = response.status;
      return { status, answer: await response.json() };
    } catch (broken) {
      return { status, answer: { error: { code: 'unreachable', message: String(broken.cause ?? broken) } } };
    }
  }

  #sign(method, target, body) {
    const timestamp = String(Math.floor(Date.now() / 1000));
    const signed = [method, target, timestamp, body].join('\n');
    return {
      'content-type': 'application/json',
      'x-relay-agent': this.agent,
      'x-relay-timestamp': timestamp,
      'x-relay-signature': createHmac('sha256', this.secret).update(signed).digest('hex'),
    };
  }
}

const calls = ['handshake', 'register', 'peers', 'send', 'poll', 'ack', 'pull', 'settle', 'renew', 'status', 'recent', 'query'];

async function answer(client, { call, ...options }) {
  if (!calls.includes(call)) {
    return { ok: false, status: 0, error: { code: 'usage', message: `there is no call ${call}` } };
  }
  try {
    return { ok: true, result: await client[call](options) };
  } catch (refused) {
    if (!(refused instanceof RelayError)) throw refused;
    return { ok: false, status: refused.status, error: refused.error };
  }
}

// Flags stay text, limits too: --limit 5 is sent as "5". Only what cannot be
// text is read as JSON.
function readFlags(args) {
  const options = {};
  for (let i = 0; i < args.length; i += 2) {
    const name = args[i].replace(/^--/, '').replaceAll('-', '_');
    const text = args[i + 1];
    options[name] = ['body', 'ack', 'ids'].includes(name) ? JSON.parse(text) : text;
  }
  return options;
}

async function main([call, ...args]) {
  const client = new RelayClient({
    url: process.env.RELAY_URL ?? 'http://127.0.0.1:19121',
    agent: process.env.RELAY_AGENT,
    secret: process.env.RELAY_SECRET,
    delays: (process.env.RELAY_RETRY_DELAYS ?? '2,4,8').split(',').filter(Boolean).map(Number),
    cursor: process.env.RELAY_CURSOR ?? '',
  });
  if (call === 'stdin') {
    for await (const line of createInterface({ input: process.stdin })) {
      console.log(JSON.stringify(await answer(client, JSON.parse(line))));
    }
    return;
  }
  const result = await answer(client, { call, ...readFlags(args) });
  console.log(JSON.stringify(result));
  process.exitCode = result.ok ? 0 : 1;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main(process.argv.slice(2));
