# haproxy with two threads before nginx; backend connections are reused.
. "$scripts/nginx.sh"
eval "nginx_$(declare -f setup)"
setup() {
    cat > haproxy.cfg <<END
global
    nbthread 2
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    http-reuse always
frontend front
    bind 127.0.0.1:$port
    default_backend back
backend back
    server nginx 127.0.0.1:$second_port
END
    port=$second_port nginx_setup
}
server() {
    nginx -e stderr -p "$dir" -c "$dir/nginx.conf" &
    exec haproxy -q -db -f "$dir/haproxy.cfg"
}
