// Loaded before a demo server: it would listen on every address.

const net = require('node:net');
const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, { port, host: '127.0.0.1' }, ...rest);
};
