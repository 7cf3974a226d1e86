# sockperf, ping-pong over TCP: it counts what is dropped, doubled and out of order. Without a rate it ends with an error
# where rings answer faster than it has planned for.
server() { exec sockperf server --tcp -i 127.0.0.1 -p "$port" > "$dir/log"; }
client() {
    sockperf ping-pong --tcp -i 127.0.0.1 -p "$port" -t 1 -m 64 --full-rtt --mps 50000 > "$dir/result"
    grep -o '# dropped messages.*' "$dir/result" || { cat "$dir/result" >&2; return 1; }
}
