// FastMCP:  node fastmcp.mjs PORT sessions|stateless

import { FastMCP } from 'fastmcp';

const [port, mode] = process.argv.slice(2);
const server = new FastMCP({ name: `fastmcp-${mode}`, version: '1.0.0' });

server.addTool({ name: 'echo', description: 'echo',
                 execute: async () => 'ok' });

await server.start({
  transportType: 'httpStream',
  httpStream: { port: Number(port), host: '127.0.0.1',
                stateless: mode === 'stateless' },
});
