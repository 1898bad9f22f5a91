// The v1 SDK behind express, wired as in its own examples:
//   node v1.mjs PORT sessions|json|events|stateless
// events has sessions whose streams can be taken up again.

import { randomUUID } from 'node:crypto';

import express from 'express';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport }
  from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { InMemoryEventStore }
  from '@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js';
import { isInitializeRequest } from '@modelcontextprotocol/sdk/types.js';

const [port, mode] = process.argv.slice(2);

const sessions = new Map();
const app = express();


async function connected(options) {
  const server = new McpServer({ name: `v1-${mode}`, version: '1' });
  const transport = new StreamableHTTPServerTransport(options);

  server.registerTool('echo', { description: 'echo' }, async () => (
    { content: [{ type: 'text', text: 'ok' }] }));
  await server.connect(transport);

  return transport;
}


function refuse(res, status, code, message) {
  res.status(status).json({ jsonrpc: '2.0', error: { code, message },
                            id: null });
}


async function withSession(req, res) {
  const id = req.headers['mcp-session-id'];
  let transport = sessions.get(id);

  if (id && !transport) {
    return refuse(res, 404, -32001, 'Session not found');
  }

  if (!transport) {
    if (!isInitializeRequest(req.body)) {
      return refuse(res, 400, -32000,
                    'Bad Request: No valid session ID provided');
    }

    transport = await connected({
      sessionIdGenerator: () => randomUUID(),
      enableJsonResponse: mode === 'json',
      ...(mode === 'events' && { eventStore: new InMemoryEventStore(),
                                 retryInterval: 2000 }),
      onsessioninitialized: (sid) => { sessions.set(sid, transport); },
    });
    transport.onclose = () => { sessions.delete(transport.sessionId); };
  }

  await transport.handleRequest(req, res, req.body);
}


async function alone(req, res) {
  if (req.method !== 'POST') {
    return refuse(res, 405, -32000, 'Method not allowed.');
  }

  const transport = await connected({ sessionIdGenerator: undefined });

  res.on('close', () => transport.close());
  await transport.handleRequest(req, res, req.body);
}


app.use(express.json());
app.all('/mcp', mode === 'stateless' ? alone : withSession);
app.listen(Number(port), '127.0.0.1');
