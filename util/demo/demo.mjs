// make demo: nginx with the module in front of two real MCP servers, clients
// that open sessions and go quiet, and what the status page says, live.
//
//   PORT=8080        where nginx listens; by default the next free one
//   DEMO_SECONDS=N   ends by itself
//   NGINX, MCP_MODULE  other binaries
//
// Ends only what it started, by pid.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { Clients } from './clients.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'mcp-demo-'));
const packages = path.join(root, 't/sdk/node_modules/@modelcontextprotocol');
const start = Date.now();

const nginx = {};
const servers = [];
const clients = new Clients(path.join(packages, 'sdk/dist/esm/client'), say);
const seen = new Map();

let ending = false;


function say(text) {
  const seconds = ((Date.now() - start) / 1000).toFixed(1);

  console.log(`${seconds.padStart(6)}s  ${text}`);
}


// ---- ports and processes ----

function isFree(port) {
  return new Promise((resolve) => {
    const probe = net.createServer();

    probe.once('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
  });
}


async function freePort(port) {
  while (!await isFree(port)) {
    port++;
  }

  return port;
}


function isOpen(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');

    socket.once('connect', () => { socket.destroy(); resolve(true); });
    socket.once('error', () => resolve(false));
  });
}


// Starts a program; "what" keeps the child, or nothing once it has gone.

function run(what, program, args, env) {
  const log = fs.openSync(path.join(folder, `${what.name}.log`), 'a');
  const child = spawn(program, args, { env, stdio: ['ignore', log, log] });

  fs.closeSync(log);
  what.child = child;

  child.once('error', (e) => fail(`${program}: ${e.message}`));
  child.once('exit', () => {
    what.child = undefined;

    if (!ending && what !== nginx) {
      say(`${what.name} has died; Enter or "kill -USR1 ${process.pid}" `
          + 'starts it again');
    }
  });
}


async function started(what) {
  for (let i = 0; i < 200; i++) {
    if (await isOpen(what.port)) {
      return;
    }

    if (!what.child || ending) {
      break;
    }

    await sleep(50);
  }

  fail(`${what.name} did not start, see ${what.name}.log`);
}


async function startServer(server) {
  run(server, process.execPath,
      ['-r', path.join(root, 'util/demo/preload.cjs'),
       path.join(packages, 'server-everything/dist/index.js'),
       'streamableHttp'],
      { PATH: process.env.PATH, PORT: String(server.port) });

  await started(server);
  say(`${server.name} runs, pid ${server.child.pid}: stop it with `
      + `"kill -9 ${server.child.pid}"`);
}


async function startNginx(port) {
  const module = process.env.MCP_MODULE
                 ?? path.join(root, 'objs/ngx_mcp_keepalive_module.so');
  const { NGINX, ...env } = process.env;      // nginx has a use for that name
  const link = path.join(folder, 'modules/ngx_mcp_keepalive_module.so');

  fs.mkdirSync(path.dirname(link));
  fs.symlinkSync(module, link);

  let text = fs.readFileSync(path.join(root, 'examples/demo.conf'), 'utf8');

  text = text.replace('listen 127.0.0.1:8080', `listen 127.0.0.1:${port}`);
  servers.forEach((s, i) => {
    text = text.replace(`server 127.0.0.1:${3001 + i} `,
                        `server 127.0.0.1:${s.port} `);
  });
  fs.writeFileSync(path.join(folder, 'demo.conf'), text);

  Object.assign(nginx, { name: 'nginx', port });
  env.PATH = `${env.PATH}:/usr/sbin`;
  run(nginx, NGINX || 'nginx',
      ['-p', folder, '-e', path.join(folder, 'error.log'),
       '-c', path.join(folder, 'demo.conf')], env);

  await started(nginx);
}


async function restart() {
  for (const server of servers.filter((s) => !s.child)) {
    await startServer(server);
  }
}


// ---- what the status page says ----

async function peers() {
  const answer = await fetch(`http://127.0.0.1:${nginx.port}/status`);
  const status = await answer.json();

  return status.upstreams.tools.peers;
}


function watch(peer) {
  const { sent, bytes, ...verdicts } = peer.keepalives;
  const last = seen.get(peer.name) ?? { state: 'connecting', lost: 0 };
  const counts = Object.entries(verdicts).filter(([, n]) => n > 0)
                       .map(([name, n]) => `${name} ${n}`).join(', ');
  const line = `${peer.name}  ${peer.state.padEnd(10)}  `
             + `sessions ${peer.sessions}  keepalives ${sent ?? 0}`
             + (counts ? `: ${counts}` : '')
             + (peer.charges ? `  charges ${peer.charges}/${peer.budget}` : '');
  const now = { state: peer.state, lost: verdicts.session_lost ?? 0,
                line: last.line, at: last.at ?? 0 };

  if (peer.state !== last.state) {
    say(`${peer.name}  ${last.state} -> ${peer.state}`
        + (peer.reason ? `: ${peer.reason}` : ''));
  }

  if (line !== last.line && Date.now() - now.at >= 1000) {
    say(line);
    now.line = line;
    now.at = Date.now();
  }

  seen.set(peer.name, now);
  return now.lost > last.lost;
}


async function live() {
  while (!ending) {
    const all = await peers();
    const lost = all.map(watch).some((x) => x);

    if (lost) {
      await clients.wake(async () => (await peers())
        .every((p) => p.state !== 'connecting'));
    }

    await sleep(200);
  }
}


// ---- beginning and end ----

async function end(code) {
  if (ending) {
    return;
  }

  ending = true;

  const left = [nginx, ...servers].map((x) => x.child).filter((x) => x);

  clients.close();
  left.forEach((child) => child.kill('SIGTERM'));

  for (let i = 0; i < 40 && left.some((c) => isAlive(c)); i++) {
    await sleep(50);
  }

  left.filter(isAlive).forEach((child) => child.kill('SIGKILL'));

  if (code === 0) {
    fs.rmSync(folder, { recursive: true, force: true });
  }

  console.log('demo: all ended');
  process.exit(code);
}


function isAlive(child) {
  return child.exitCode === null && child.signalCode === null;
}


function fail(text) {
  if (!ending) {
    console.error(`demo: ${text}\ndemo: logs are in ${folder}`);
    end(1);
  }
}


async function main() {
  fs.chmodSync(folder, 0o755);                // nginx workers are nobody

  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.on(signal, () => end(0));
  }

  if (process.env.DEMO_SECONDS) {
    setTimeout(() => end(0), process.env.DEMO_SECONDS * 1000);
  }

  const port = process.env.PORT ? Number(process.env.PORT)
                                : await freePort(8080);
  let next = 3001;

  for (const name of ['server-a', 'server-b']) {
    const server = { name, port: await freePort(next) };

    next = server.port + 1;
    servers.push(server);
    await startServer(server);
  }

  await startNginx(port);
  say(`nginx runs: http://127.0.0.1:${port}/mcp, status at /status`);

  process.on('SIGUSR1', restart);

  if (process.stdin.isTTY) {
    process.stdin.on('data', restart);
  }

  await clients.open(`http://127.0.0.1:${port}/mcp`, 4);
  say(`${clients.size} clients have opened a session each and go quiet; `
      + 'nginx asks for them every 2 s');
  say('Ctrl-C ends everything' + (process.env.DEMO_SECONDS
    ? `, or the end of ${process.env.DEMO_SECONDS} s` : ''));

  await live();
}


main().catch((e) => fail(e.stack));
