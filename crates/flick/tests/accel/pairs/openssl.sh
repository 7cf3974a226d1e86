# TLS of openssl: the server answers each line reversed.
setup() { openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out certificate -subj /CN=localhost 2> log; }
server() {
    exec openssl s_server -accept "127.0.0.1:$port" -key key -cert certificate -rev -quiet > "$dir/log" 2>&1
}
client() {
    (seq 1 30000; echo CLOSE) | openssl s_client -connect "127.0.0.1:$port" -quiet 2> "$dir/client.log" | sha256sum
}
