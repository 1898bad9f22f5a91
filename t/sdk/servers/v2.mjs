// The v2 SDK:  node v2.mjs PORT stateless|reject|dual
// stateless is what createMcpHandler does unless told otherwise, reject knows
// no protocol before 2026-07-28, dual has sessions for old clients beside it.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';

import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest }
  from '@modelcontextprotocol/node';
import { createMcpHandler, isLegacyRequest, McpServer }
  from '@modelcontextprotocol/server';

const [port, mode] = process.argv.slice(2);

const sessions = new Map();
const handler = toNodeHandler(createMcpHandler(newServer, {
  legacy: mode === 'dual' ? 'reject' : mode,
}));


function newServer() {
  const server = new McpServer({ name: `v2-${mode}`, version: '1' });

  server.registerTool('echo', { description: 'echo' }, async () => (
    { content: [{ type: 'text', text: 'ok' }] }));

  return server;
}


function refuse(res, status, code, message) {
  res.writeHead(status, { 'content-type': 'application/json' });
  res.end(JSON.stringify({ jsonrpc: '2.0', error: { code, message },
                           id: null }));
}


async function withSession(req, res, body) {
  const id = req.headers['mcp-session-id'];
  let transport = sessions.get(id);

  if (id && !transport) {
    return refuse(res, 404, -32001, 'Session not found');
  }

  if (!transport) {
    if (body?.method !== 'initialize') {
      return refuse(res, 400, -32000,
                    'Bad Request: No valid session ID provided');
    }

    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (sid) => { sessions.set(sid, transport); },
    });
    transport.onclose = () => { sessions.delete(transport.sessionId); };
    await newServer().connect(transport);
  }

  await transport.handleRequest(req, res, body);
}


async function both(req, res) {
  const body = req.method === 'POST' ? await json(req) : undefined;

  if (await isLegacyRequest(await toWebRequest(req, body))) {
    return withSession(req, res, body);
  }

  await handler(req, res, body);
}


createServer(mode === 'dual' ? both : handler)
  .listen(Number(port), '127.0.0.1');
