// A page: an HTTP server that asks redis for N values, one after the other. Arguments: its port, that of redis.
'use strict';
const http = require('http'), net = require('net');
const [port, redisPort] = process.argv.slice(2).map(Number);
const waiting = [];
let unread = Buffer.alloc(0);
const redis = net.connect({ port: redisPort, host: '127.0.0.1', noDelay: true });
redis.on('data', data => {
    unread = unread.length ? Buffer.concat([unread, data]) : data;
    for (;;) {
        const line = unread.indexOf('\r\n');
        if (line < 0) return;
        const length = Number(unread.toString('latin1', 1, line));
        if (unread[0] !== 36 || !(length >= 0)) throw new Error('redis: ' + unread.toString('latin1'));
        if (unread.length < line + 4 + length) return;
        const value = unread.toString('latin1', line + 2, line + 2 + length);
        unread = unread.subarray(line + 4 + length);
        waiting.shift()(value);
    }
});
redis.on('close', () => process.exit(1));
const get = key => new Promise(resolve => {
    waiting.push(resolve);
    redis.write(`*2\r\n$3\r\nGET\r\n$${key.length}\r\n${key}\r\n`);
});
http.createServer(async (request, response) => {
    const count = Number(request.url.slice(1));
    let text = count + ' values:';
    for (let n = 0; n < count; n++) text += ' ' + await get('key' + n);
    text += '\n';
    response.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': text.length });
    response.end(text);
}).listen(port, '127.0.0.1');
