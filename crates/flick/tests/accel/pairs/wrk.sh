# wrk at workers of nginx: two threads, each with an event loop.
. "$scripts/nginx.sh"
client() { wrk -t 2 -c 4 -d 1 "http://127.0.0.1:$port/page" | grep -cE 'Non-2xx|Socket errors' || true; }
