// An official client that does what it is told, one word a line:
//   node client.mjs v1|v2|v2-auto|v2-pinned|mcp-remote URL
//   connect list call listen close
// Each is answered by a line of JSON: { ok, text }.  "connect" makes a new
// client, whatever became of the one before.

import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const [kind, url] = process.argv.slice(2);
const info = { name: `matrix-${kind}`, version: '1' };
const negotiation = { 'v2-auto': { mode: 'auto' },
                      'v2-pinned': { mode: { pin: '2026-07-28' } } };

let client;


// ---- kinds ----

async function v1() {
  const { Client } =
    await import('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } =
    await import('@modelcontextprotocol/sdk/client/streamableHttp.js');

  client = new Client(info);
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
}


async function v2() {
  const { Client, StreamableHTTPClientTransport } =
    await import('@modelcontextprotocol/client');

  client = new Client(info, { versionNegotiation: negotiation[kind] });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
}


// a bridge, behind pipes

async function remote() {
  const { Client } =
    await import('@modelcontextprotocol/sdk/client/index.js');
  const { StdioClientTransport } =
    await import('@modelcontextprotocol/sdk/client/stdio.js');
  const require = createRequire(import.meta.url);
  const proxy = join(dirname(require.resolve('mcp-remote/package.json')),
                     'dist', 'proxy.js');

  client = new Client(info);
  await client.connect(new StdioClientTransport({
    command: process.execPath, args: [proxy, url, '--allow-http'],
    env: { ...process.env }, stderr: 'ignore',
  }));
}


// ---- words ----

const words = {
  async connect() {
    const start = { v1, 'mcp-remote': remote }[kind] ?? v2;

    await start();
    client.onerror = () => {};

    const era = client.getNegotiatedProtocolVersion?.()
      ?? client.transport?.protocolVersion ?? '';

    return `${era}`;
  },

  async list() {
    return `${(await client.listTools()).tools.length} tools`;
  },

  async call() {
    const result = await client.callTool({
      name: 'echo', arguments: { message: 'hello' } });

    return JSON.stringify(result.content).slice(0, 80);
  },

  async listen() {
    await client.listen({ toolsListChanged: true });
    return 'acknowledged';
  },

  async close() {
    await client?.close();
    return 'closed';
  },
};


function late(ms) {
  return new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no end in ${ms} ms`)), ms).unref();
  });
}


for await (const line of createInterface({ input: process.stdin })) {
  let answer;

  try {
    answer = { ok: true,
               text: await Promise.race([words[line.trim()](), late(15000)]) };

  } catch (error) {
    answer = { ok: false, text: String(error.message).slice(0, 160) };
  }

  console.log(JSON.stringify(answer));
}

await client?.close().catch(() => {});
process.exit(0);
