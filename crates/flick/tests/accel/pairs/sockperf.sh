# sockperf, ping-pong over TCP: it counts what is dropped, doubled and out of order.
server() { exec sockperf server --tcp -i 127.0.0.1 -p "$port" > "$dir/log"; }
client() {
    sockperf ping-pong --tcp -i 127.0.0.1 -p "$port" -t 1 -m 64 --full-rtt > "$dir/result"
    grep -o '# dropped messages.*' "$dir/result"
}
