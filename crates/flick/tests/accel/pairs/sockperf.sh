# sockperf, ping-pong over TCP: it counts what is dropped, doubled and out of order.
server() { exec sockperf server --tcp -i 127.0.0.1 -p "$port" > "$dir/log"; }
# Beside other tests a run seldom ends without a result, for a cause that is not known: what it printed is shown then.
client() {
    for _ in 1 2 3; do
        sockperf ping-pong --tcp -i 127.0.0.1 -p "$port" -t 1 -m 64 --full-rtt > "$dir/result" || true
        if grep -o '# dropped messages.*' "$dir/result"; then return; fi
        cat "$dir/result" >&2
    done
    return 1
}
