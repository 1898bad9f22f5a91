// Clients with an open event stream:
//   node streams.mjs v1|v2|eventsource URL COUNT [PAUSE]
// Prints a line of JSON for whatever one notices: that it is connected, a
// notification, an error, a GET that is answered (all with the time, ms since
// 1970).  With PAUSE each calls a tool again and again.  Ends when its input
// does.

import { setTimeout as sleep } from 'node:timers/promises';

const [kind, url, count, pause] = process.argv.slice(2);
const many = new URL('servers/node_modules/@modelcontextprotocol/',
                     import.meta.url);
const files = {
  v1: ['sdk/dist/esm/client/index.js', 'sdk/dist/esm/client/streamableHttp.js'],
  v2: ['client/dist/index.mjs', 'client/dist/index.mjs'],
}[kind];


function say(client, what) {
  process.stdout.write(`${JSON.stringify({ client, at: Date.now(), ...what })}\n`);
}


async function sdk(n) {
  const [{ Client }, { StreamableHTTPClientTransport }] = await Promise.all(
    files.map((file) => import(new URL(file, many).href)));

  const watched = async (where, init) => {
    const answer = await fetch(where, init);

    if (init?.method === 'GET') {
      say(n, { get: answer.status });
    }

    return answer;
  };

  const client = new Client({ name: `${kind}-${n}`, version: '1' });

  client.onerror = (e) => say(n, { error: e.message });
  client.onclose = () => say(n, { error: 'closed' });
  client.fallbackNotificationHandler = async (m) => say(n, { note: m.method });

  await client.connect(new StreamableHTTPClientTransport(new URL(url),
                                                         { fetch: watched }));

  // a session of which the server is sure

  const call = () => client.callTool({ name: 'echo', arguments: {} });

  await call();
  say(n, { ready: true });

  while (pause) {
    await sleep(Number(pause));
    await call().then(() => say(n, { called: true }),
                      () => say(n, { called: false }));
  }
}


// What a browser has, for Node.

async function source(n) {
  const { EventSource } = await import(
    new URL('node_modules/eventsource/dist/index.js', import.meta.url).href);
  const events = new EventSource(url);

  events.onopen = () => say(n, { get: 200, ready: true });
  events.onmessage = (e) => say(n, { note: e.data });
  events.onerror = (e) => say(n, { error: e.message ?? 'error' });
}


process.stdin.on('end', () => process.exit());
process.stdin.resume();

await Promise.all(Array.from({ length: Number(count) }, (_, n) => (
  kind === 'eventsource' ? source(n) : sdk(n))));
