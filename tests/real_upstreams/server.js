// Node's http module as an upstream. Says on stderr where it listens.
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const dir = process.argv[2];
let connections = 0;
let hits = 0;
/** Event streams that wait for the word to go on. */
const streams = new Set();

function pieces(request, response) {
  response.writeHead(200, { 'Content-Type': 'text/plain', Trailer: 'X-Pieces' });
  for (let i = 0; i < 5; i += 1) response.write(`piece ${i}\n`);
  response.addTrailers({ 'X-Pieces': '5' });
  response.end();
}

function events(request, response) {
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  response.flushHeaders();
  let count = 0;
  const next = () => {
    response.write(`data: event ${count}\n\n`);
    count += 1;
  };
  streams.add(next);
  response.on('close', () => streams.delete(next));
}

function store(request, response) {
  const name = path.join(dir, path.basename(request.url));
  const file = fs.createWriteStream(name);
  request.pipe(file);
  file.on('finish', () => response.writeHead(201).end());
}

function login(request, response) {
  response.writeHead(302, {
    Location: '/home',
    'Set-Cookie': ['session=1; Path=/; HttpOnly', 'theme=path=/dark; Path=/elsewhere', 'bare=1'],
  });
  response.end();
}

function home(request, response) {
  const sent = request.headers.cookie || '';
  const known = sent.includes('session=1') && !sent.includes('theme=');
  response.writeHead(known ? 200 : 403).end(known ? 'welcome' : sent);
}

const answers = {
  '/hello': (request, response) => {
    response.writeHead(200, { 'Content-Length': 5 }).end('hello');
  },
  '/connections': (request, response) => response.end(String(connections)),
  '/hits': (request, response) => response.end(String(hits)),
  '/pieces': pieces,
  '/echo': (request, response) => request.pipe(response),
  '/events': events,
  '/go': (request, response) => {
    for (const next of streams) next();
    response.end(String(streams.size));
  },
  '/empty': (request, response) => response.writeHead(204).end(),
  '/unchanged': (request, response) => response.writeHead(304, { ETag: '"1"' }).end(),
  '/login': login,
  '/home': home,
  '/hints': (request, response) => {
    response.writeEarlyHints({ link: '</style.css>; rel=preload' });
    response.end('hinted');
  },
  '/cut-length': (request, response) => {
    response.writeHead(200, { 'Content-Length': 1000 });
    response.write('x'.repeat(100), () => request.socket.destroy());
  },
  '/cut-chunked': (request, response) => {
    response.write('x'.repeat(100), () => request.socket.destroy());
  },
  '/cut-before': (request) => {
    hits += 1;
    request.socket.destroy();
  },
  '/refuse': (request, response) => {
    response.writeHead(413, { Connection: 'close', 'Content-Length': 7 }).end('too big');
  },
};

function answer(request, response) {
  const name = request.url.split('?')[0];
  if (name.startsWith('/store/')) store(request, response);
  else if (name.startsWith('/files/')) {
    const file = path.join(dir, path.basename(name));
    response.writeHead(200, { 'Content-Length': fs.statSync(file).size });
    fs.createReadStream(file).pipe(response);
  } else if (answers[name]) answers[name](request, response);
  else response.writeHead(404).end();
}

/** A frame of a server (RFC 6455 section 5.2): final, not masked. */
function frame(opcode, payload) {
  const head = payload.length < 126 ? Buffer.from([0x80 | opcode, payload.length])
    : payload.length < 65536 ? Buffer.from([0x80 | opcode, 126, 0, 0])
      : Buffer.from([0x80 | opcode, 127, 0, 0, 0, 0, 0, 0, 0, 0]);
  if (head.length === 4) head.writeUInt16BE(payload.length, 2);
  if (head.length === 10) head.writeBigUInt64BE(BigInt(payload.length), 2);
  return Buffer.concat([head, payload]);
}

/** The first frame of a client in `bytes`, or null while it is not whole. */
function unframe(bytes) {
  if (bytes.length < 2) return null;
  let length = bytes[1] & 0x7f;
  let at = 2;
  if (length === 126) at = 4;
  if (length === 127) at = 10;
  if (bytes.length < at + 4) return null;
  if (length === 126) length = bytes.readUInt16BE(2);
  if (length === 127) length = Number(bytes.readBigUInt64BE(2));
  if (bytes.length < at + 4 + length) return null;
  const mask = bytes.subarray(at, at + 4);
  const payload = Buffer.from(bytes.subarray(at + 4, at + 4 + length));
  for (let i = 0; i < payload.length; i += 1) payload[i] ^= mask[i % 4];
  return { opcode: bytes[0] & 0x0f, payload, rest: bytes.subarray(at + 4 + length) };
}

function upgrade(request, socket, head) {
  const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
  const accept = crypto.createHash('sha1').update(key).digest('base64');
  // The first message right behind the head, as a chat server greets.
  socket.write(Buffer.concat([
    Buffer.from('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n'
      + `Connection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`),
    frame(1, Buffer.from(`welcome to ${request.headers.host}`)),
  ]));
  let pending = head;
  const take = (bytes) => {
    pending = Buffer.concat([pending, bytes]);
    for (let got = unframe(pending); got; got = unframe(pending)) {
      pending = got.rest;
      // Close and text and bytes come back as they are, a ping as a pong.
      socket.write(frame(got.opcode === 9 ? 10 : got.opcode, got.payload));
      if (got.opcode === 8) socket.end();
    }
  };
  socket.on('data', take);
  socket.on('error', () => {});
  take(Buffer.alloc(0));
}

const server = http.createServer(answer);
server.on('connection', () => { connections += 1; });
server.on('checkContinue', (request, response) => {
  if (request.url === '/refuse') {
    answer(request, response);
    return;
  }
  response.writeContinue();
  answer(request, response);
});
server.on('upgrade', upgrade);
server.listen(0, '127.0.0.1', () => {
  console.error(`listening on 127.0.0.1:${server.address().port}`);
});
