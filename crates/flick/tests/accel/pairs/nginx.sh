# Workers of nginx; ab keeps its connections, curl asks for a file by sendfile.
setup() {
    mkdir www && seq 1 50000 > www/large
    cat > nginx.conf <<END
daemon off; worker_processes 2; pid $dir/pid; error_log $dir/error;
$([ "$(id -u)" = 0 ] && echo "user root;")
events { worker_connections 64; }
http {
    access_log off; sendfile on; keepalive_requests 1000000;
    client_body_temp_path $dir/body; proxy_temp_path $dir/proxy; fastcgi_temp_path $dir/fastcgi;
    uwsgi_temp_path $dir/uwsgi; scgi_temp_path $dir/scgi;
    server {
        listen 127.0.0.1:$port; root $dir/www;
        location /page { return 200 "a page of nginx, \$arg_n\n"; }
    }
}
END
}
server() { exec nginx -e stderr -p "$dir" -c "$dir/nginx.conf"; }
client() {
    ab -q -k -n 4000 -c 4 "http://127.0.0.1:$port/page" | grep -E '^(Complete|Failed|Keep-Alive|HTML)'
    curl -s "http://127.0.0.1:$port/page?n=[1-200]" | sha256sum
    curl -s "http://127.0.0.1:$port/large?[1-3]" | sha256sum
}
# An upgrade is refused to a program whose parent is the one that has started it, or that was started without its path.
daemon() {
    sed "s/daemon off/daemon on/; s/:$port/:$second_port/; s|$dir/pid|$dir/daemon.pid|" nginx.conf > daemon.conf
    "$(command -v nginx)" -e "$dir/error" -p "$dir" -c "$dir/daemon.conf" 2> daemon.log && echo started
}
load() { curl -s "http://127.0.0.1:$second_port/page?n=[1-3000]" | sha256sum; }
