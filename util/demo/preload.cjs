// Loaded before a demo server.

const net = require('node:net');
const listen = net.Server.prototype.listen;

// it would listen on every address

net.Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, { port, host: '127.0.0.1' }, ...rest);
};

// Debian 12's Node 18 has no such global, and the SDK wants it

globalThis.crypto ??= require('node:crypto').webcrypto;
