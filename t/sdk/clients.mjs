// Official clients that call again and again, whatever they are answered, as
// agents do; none is ever started over:
//   node clients.mjs v1|v2 URL COUNT PAUSE
// Prints a line of JSON for each call: which client, when it began and ended
// (ms since 1970), the error if it failed; and one when a client gives its
// stream up for good.  Ends when its input does.

import { setTimeout as sleep } from 'node:timers/promises';

const [sdk, url, count, pause] = process.argv.slice(2);
const folder = new URL('servers/node_modules/@modelcontextprotocol/',
                       import.meta.url);
const files = {
  v1: ['sdk/dist/esm/client/index.js', 'sdk/dist/esm/client/streamableHttp.js'],
  v2: ['client/dist/index.mjs', 'client/dist/index.mjs'],
}[sdk];

const [{ Client }, { StreamableHTTPClientTransport }] = await Promise.all(
  files.map((file) => import(new URL(file, folder).href)));

const timeout = 5000;
let ending = false;


function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}


async function live(n) {
  const client = new Client({ name: `${sdk}-${n}`, version: '1' });

  // streams that a kill has cut are opened again, but not for ever

  client.onerror = (e) => {
    if (/Maximum reconnection/.test(e.message)) {
      say({ client: n, gave_up: Date.now() });
    }
  };

  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  say({ client: n, ready: true });

  while (!ending) {
    const began = Date.now();
    let error;

    const call = { name: 'echo', arguments: { message: 'm' } };

    try {
      await (sdk === 'v1' ? client.callTool(call, undefined, { timeout })
                          : client.callTool(call, { timeout }));

    } catch (e) {
      error = `${e.code ?? ''} ${e.message}`.slice(0, 200);
    }

    say({ client: n, began, ended: Date.now(), error });
    await sleep(Math.max(0, began + Number(pause) - Date.now()));
  }
}


process.stdin.on('end', () => { ending = true; setTimeout(process.exit, 500); });
process.stdin.resume();

await Promise.all(Array.from({ length: Number(count) }, async (_, n) => {
  await sleep(n * Number(pause) / Number(count));
  await live(n);
}));
