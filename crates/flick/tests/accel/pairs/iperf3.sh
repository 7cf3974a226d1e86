# iperf3 in both directions. At its end it does not read what is still on its way.
server() { exec iperf3 -s -B 127.0.0.1 -p "$port" > "$dir/log"; }
client() {
    for direction in '' -R; do
        # After a connection without a test, as of one who asks whether it listens, the server opens its listener again.
        for _ in $(seq 100); do
            iperf3 -c 127.0.0.1 -p "$port" -n 40M -l 8K $direction -J > "$dir/result"
            grep -q '"error".*unable to connect' "$dir/result" || break
            sleep 0.05
        done
        ! grep '"error"' "$dir/result" >&2
        /usr/bin/python3 - "$dir/result" <<'END'
import json, sys
end = json.load(open(sys.argv[1]))['end']
sent, received = end['sum_sent']['bytes'], end['sum_received']['bytes']
print(sent >= 40 << 20, 0 < received <= sent or (sent, received))
END
    done
}
