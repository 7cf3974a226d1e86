# apache: a process for each connection (prefork), or threads of several processes (event).
model=${model:-prefork}
setup() {
    mkdir www && seq 1 50000 > www/large && echo "a page of apache" > www/page
    modules=/usr/lib/apache2/modules
    cat > apache.conf <<END
ServerName localhost
ServerRoot $dir
Listen 127.0.0.1:$port
LoadModule mpm_${model}_module $modules/mod_mpm_$model.so
LoadModule authz_core_module $modules/mod_authz_core.so
PidFile $dir/pid
ErrorLog $dir/error
DocumentRoot $dir/www
StartServers 2
KeepAlive On
MaxKeepAliveRequests 0
END
}
server() { exec apache2 -DFOREGROUND -f "$dir/apache.conf"; }
client() {
    ab -q -k -n 3000 -c 3 "http://127.0.0.1:$port/page" | grep -E '^(Complete|Failed|Keep-Alive|HTML)'
    curl -s "http://127.0.0.1:$port/page?n=[1-200]" | sha256sum
    curl -s "http://127.0.0.1:$port/large?[1-3]" | sha256sum
}
