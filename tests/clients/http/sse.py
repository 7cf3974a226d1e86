"""A Server-Sent Events client, as EventSource reads a stream: `sse.py URL`. The events arrive when the origin sends them,
one a second with a pause of QUIET_S seconds in the middle, and not together at the end."""
import http.client
import os
import sys
import time

QUIET_S = float(os.environ.get('QUIET_S', '3'))
connection = http.client.HTTPConnection(sys.argv[1][7:], timeout=QUIET_S + 30)
start = time.monotonic()
connection.request('GET', '/sse', headers={'Accept': 'text/event-stream', 'Cache-Control': 'no-store'})
response = connection.getresponse()
assert response.status == 200, response.status
assert response.getheader('Content-Type') == 'text/event-stream', response.getheader('Content-Type')
events, data = [], []
for line in iter(response.readline, b''):
    line = line.decode().rstrip('\r\n')
    if line:
        name, _, value = line.partition(':')
        if name == 'data':
            data.append(value.removeprefix(' '))
    elif data:
        events.append(('\n'.join(data), time.monotonic() - start))
        data = []
assert [text for text, _ in events] == ['0', '1', '2', '3'], events
for (text, at), due in zip(events, [0, 1, 1 + QUIET_S, 2 + QUIET_S]):
    assert due - 0.5 < at < due + 0.9, f'event {text} after {at:.1f} s, sent after {due} s'
