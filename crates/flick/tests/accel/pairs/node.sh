# node with workers of its module cluster: the first process accepts, and passes connections on.
setup() {
    cat > server.js <<END
const cluster = require('cluster'), http = require('http');
if (cluster.isPrimary) {
    for (let i = 0; i < 2; i++) cluster.fork();
} else {
    const answer = (request, response) => response.end('answer ' + request.url + 'x'.repeat(500));
    http.createServer(answer).listen($port, '127.0.0.1');
}
END
}
server() { exec node "$dir/server.js"; }
client() {
    cat > "$dir/client.js" <<END
const http = require('http'), hash = require('crypto').createHash('sha256');
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
function ask(n) {
    if (n == 1500) { console.log(hash.digest('hex')); agent.destroy(); return; }
    http.get({ port: $port, host: '127.0.0.1', path: '/' + n, agent }, response => {
        response.on('data', data => hash.update(data));
        response.on('end', () => ask(n + 1));
    });
}
ask(0);
END
    node "$dir/client.js"
}
