# php-fpm behind nginx, which keeps its connections to it.
. "$scripts/nginx.sh"
setup() {
    mkdir www
    cat > www/index.php <<'END'
<?php echo hash('sha256', $_GET['n']), str_repeat('x', $_GET['n'] * 10), "\n";
END
    cat > fpm.conf <<END
[global]
daemonize = no
error_log = $dir/fpm.log
[www]
listen = $dir/fpm.sock
pm = static
pm.max_children = 2
$([ "$(id -u)" = 0 ] && printf 'user = root\ngroup = root\n')
END
    cat > nginx.conf <<END
daemon off; worker_processes 1; pid $dir/pid; error_log $dir/error;
$([ "$(id -u)" = 0 ] && echo "user root;")
events { worker_connections 64; }
http {
    access_log off; keepalive_requests 1000000;
    client_body_temp_path $dir/body; proxy_temp_path $dir/proxy; fastcgi_temp_path $dir/fastcgi;
    uwsgi_temp_path $dir/uwsgi; scgi_temp_path $dir/scgi;
    upstream fpm { server unix:$dir/fpm.sock; keepalive 2; }
    server {
        listen 127.0.0.1:$port;
        location / {
            fastcgi_pass fpm; fastcgi_keep_conn on; include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $dir/www/index.php;
        }
    }
}
END
}
server() {
    nginx -e stderr -p "$dir" -c "$dir/nginx.conf" &
    exec "$(ls /usr/sbin/php-fpm* | tail -n 1)" -R -F -y "$dir/fpm.conf"
}
client() {
    while ! curl -sf -o /dev/null "http://127.0.0.1:$port/?n=1"; do sleep 0.02; done
    curl -s "http://127.0.0.1:$port/?n=[1-300]" | sha256sum
}
