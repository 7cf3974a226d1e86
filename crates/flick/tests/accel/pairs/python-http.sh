# The server of Python's library, a thread for each connection. Without TCP_NODELAY an answer may take 40 ms.
setup() { mkdir www && seq 1 20000 > www/large && echo "a page of python" > www/page; }
server() { exec /usr/bin/python3 -m http.server --protocol HTTP/1.1 -b 127.0.0.1 -d "$dir/www" "$port" 2> "$dir/log"; }
client() {
    curl -s "http://127.0.0.1:$port/page?n=[1-20]" | sha256sum
    curl -s "http://127.0.0.1:$port/large?[1-20]" | sha256sum
}
