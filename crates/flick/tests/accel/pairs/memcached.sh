# memcached with four threads.
server() { exec memcached -u "$(id -un)" -l 127.0.0.1 -U 0 -t 4 -p "$port"; }
client() {
    cat > "$dir/client.py" <<END
import socket, sys
sockets = [socket.create_connection(('127.0.0.1', $port)) for _ in range(4)]
for i in range(500):
    for at, s in enumerate(sockets):
        value = b'%d' % (i * 7919 + at) * (i % 50 + 1)
        s.sendall(b'set k%d 0 0 %d\r\n%s\r\nget k%d\r\n' % (at, len(value), value, at))
        want = b'STORED\r\nVALUE k%d 0 %d\r\n%s\r\nEND\r\n' % (at, len(value), value)
        got = b''
        while len(got) < len(want): got += s.recv(1000)
        assert got == want, (got, want)
print('right')
END
    /usr/bin/python3 "$dir/client.py"
}
