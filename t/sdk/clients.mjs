// Official clients that call again and again, whatever they are answered, as
// agents do; none is ever started over:
//   node clients.mjs v1|v2|mcp-remote URL COUNT PAUSE
// Prints a line of JSON for each call: which client, when it began and ended
// (ms since 1970), the error if it failed; one when a client gives its stream
// up for good, and one when an mcp-remote begins a new session, as it does by
// itself where an SDK does not, or exits.  Ends when its input does.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const [sdk, url, count, pause] = process.argv.slice(2);
const folder = new URL('servers/node_modules/@modelcontextprotocol/',
                       import.meta.url);
const files = {
  v1: ['sdk/dist/esm/client/index.js', 'sdk/dist/esm/client/streamableHttp.js'],
  v2: ['client/dist/index.mjs', 'client/dist/index.mjs'],
}[sdk];
const remote = new URL('clients/node_modules/mcp-remote/dist/proxy.js',
                       import.meta.url).pathname;
const version = '2025-11-25';

const timeout = 5000;
const children = [];
let ending = false;


function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}


// Each connects and gives the function that calls.

async function connected(n) {
  const [{ Client }, { StreamableHTTPClientTransport }] = await Promise.all(
    files.map((file) => import(new URL(file, folder).href)));
  const client = new Client({ name: `${sdk}-${n}`, version: '1' });

  // streams that a kill has cut are opened again, but not for ever

  client.onerror = (e) => {
    if (/Maximum reconnection/.test(e.message)) {
      say({ client: n, gave_up: Date.now() });
    }
  };

  await client.connect(new StreamableHTTPClientTransport(new URL(url)));

  return (call) => (sdk === 'v1' ? client.callTool(call, undefined, { timeout })
                                 : client.callTool(call, { timeout }));
}


// A program that speaks lines of JSON-RPC and passes them on.

async function piped(n) {
  const waiting = new Map();
  const { MCP_REMOTE_CONFIG_DIR: own, ...env } = process.env;
  let id = 0;
  let gone;

  const child = spawn(process.execPath,
    [remote, url, '--allow-http', '--transport', 'http-only'],
    { env: { ...env, ...(own && { MCP_REMOTE_CONFIG_DIR: `${own}/${n}` }) } });

  const settle = (key, how, what) => {
    waiting.get(key)?.[how](what);
    waiting.delete(key);
  };

  children.push(child);
  child.stdin.on('error', () => {});
  child.on('exit', () => {
    gone = new Error('it has exited');
    [...waiting.keys()].forEach((key) => settle(key, 'reject', gone));

    if (!ending) {
      say({ client: n, exited: Date.now() });
    }
  });

  createInterface({ input: child.stdout }).on('line', (line) => {
    const { id: key, method, result, error } = JSON.parse(line);

    if (method === undefined) {
      settle(key, error ? 'reject' : 'resolve', error ?? result);
    }
  });

  createInterface({ input: child.stderr }).on('line', (line) => {
    if (/Maximum reconnection/.test(line)) {
      say({ client: n, gave_up: Date.now() });

    } else if (/Re-established session/.test(line)) {
      say({ client: n, anew: Date.now() });
    }
  });

  const send = (message) => {
    child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  };

  const ask = (method, params, ms) => new Promise((resolve, reject) => {
    const key = ++id;
    const late = setTimeout(settle, ms, key, 'reject', new Error('timed out'));
    const end = (then) => (what) => { clearTimeout(late); then(what); };

    waiting.set(key, { resolve: end(resolve), reject: end(reject) });
    send({ id: key, method, params });

    if (gone) {
      settle(key, 'reject', gone);
    }
  });

  // it takes a while to start

  await ask('initialize', { protocolVersion: version, capabilities: {},
                            clientInfo: { name: `${sdk}-${n}`,
                                          version: '1' } }, 120000);
  send({ method: 'notifications/initialized' });

  return (call) => ask('tools/call', call, timeout);
}


async function live(n) {
  const tool = await (files ? connected(n) : piped(n));

  say({ client: n, ready: true });

  while (!ending) {
    const began = Date.now();
    let error;

    try {
      await tool({ name: 'echo', arguments: { message: 'm' } });

    } catch (e) {
      error = `${e.code ?? ''} ${e.message}`.slice(0, 200);
    }

    say({ client: n, began, ended: Date.now(), error });
    await sleep(Math.max(0, began + Number(pause) - Date.now()));
  }
}


process.on('exit', () => children.forEach((child) => child.kill()));
process.stdin.on('end', () => { ending = true; setTimeout(process.exit, 500); });
process.stdin.resume();

await Promise.all(Array.from({ length: Number(count) }, async (_, n) => {
  await sleep(n * Number(pause) / Number(count));
  await live(n);
}));
