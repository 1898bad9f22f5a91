// Clients made of the official SDK: each opens a session, uses it once and
// goes quiet.  So quiet that it does not even open its stream again when the
// server dies: nginx's keepalive is to find out first.

import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';


const reconnectionOptions = {
  initialReconnectionDelay: 1000, maxReconnectionDelay: 1000,
  reconnectionDelayGrowFactor: 1, maxRetries: 0,
};


export class Clients {
  #folder;
  #say;
  #url;
  #open = [];

  constructor(folder, say) {
    this.#folder = folder;
    this.#say = say;
  }

  get size() {
    return this.#open.length;
  }

  async open(url, count) {
    this.#url = url;

    while (this.size < count) {
      this.#open.push(await this.#start());
    }
  }

  // Every client makes a call; one whose session was lost starts a new one.
  // A few more join until "proven" says that every server was used: one that
  // comes back gets one new session per second until it has proven itself.

  async wake(proven) {
    for (const [i, client] of this.#open.entries()) {
      try {
        await client.listTools();

      } catch (e) {
        this.#say(`client ${i + 1} speaks again: ${reason(e)}; `
                  + 'starts a new session');
        await this.#replace(i);
      }
    }

    for (let i = 0; i < 6 && !await proven(); i++) {
      await sleep(1100);
      this.#open.push(await this.#start());
    }
  }

  close() {
    this.#open.forEach((client) => client.close().catch(() => {}));
  }

  async #replace(i) {
    await this.#open[i].close().catch(() => {});

    try {
      this.#open[i] = await this.#start();

    } catch (e) {
      this.#say(`client ${i + 1}: ${reason(e)}`);
    }
  }

  async #start() {
    const { Client } = await this.#load('index.js');
    const { StreamableHTTPClientTransport } =
      await this.#load('streamableHttp.js');

    const client = new Client({ name: 'demo', version: '1' });

    client.onerror = () => {};                // streams cut by a dead server
    await client.connect(new StreamableHTTPClientTransport(
      new URL(this.#url), { reconnectionOptions }));
    await client.listTools();

    return client;
  }

  #load(file) {
    return import(pathToFileURL(`${this.#folder}/${file}`));
  }
}


// "400 No such session" of an HTTP error, whatever else the SDK says.

function reason(e) {
  const text = /"message":"([^"]*)"/.exec(e.message)?.[1]
               ?? String(e.message).split('\n')[0];

  return `${e.code ?? ''} ${text.slice(0, 80)}`.trim();
}
