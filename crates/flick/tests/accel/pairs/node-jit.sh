# node in one process, of which each makes code as it runs.
. "$scripts/node.sh"
setup() {
    cat > server.js <<END
const answer = (request, response) => response.end('answer ' + request.url + 'x'.repeat(500));
require('http').createServer(answer).listen($port, '127.0.0.1');
END
}
