# PostgreSQL forks a process for each connection; it does not start as root.
binaries=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
setup() {
    [ -d ../data ] || "$binaries/initdb" -D ../data -A trust -U user -N --no-locale > initdb.log
    cp -r ../data data
}
server() {
    exec "$binaries/postgres" -D "$dir/data" -p "$port" -k "$dir" -h 127.0.0.1 -c fsync=off -c logging_collector=off
}
# It accepts before it has read its log, and answers "the database system is starting up".
ready() {
    "$binaries/pg_isready" -q -h 127.0.0.1 -p "$port"
}
client() {
    export PGUSER=user PGDATABASE=postgres PGPORT=$port PGHOST=127.0.0.1
    "$binaries/pgbench" -i -q -s 1 2> "$dir/init.log" || { cat "$dir/init.log" >&2; return 1; }
    "$binaries/pgbench" -n -c 3 -j 2 -t 100 -M prepared | grep -E '^number of'
    "$binaries/pgbench" -n -h "$dir" -c 2 -t 100 -S | grep -E '^number of'
    psql -Atc 'select count(*), sum(abalance) = (select sum(delta) from pgbench_history) from pgbench_accounts'
    psql -Atc 'copy pgbench_branches to stdout' | wc -l
    psql -Atc 'select md5(string_agg(n::text, $$,$$)) from generate_series(1, 50000) n'
    psql -Atc 'select n, md5(n::text) from generate_series(1, 20000) n' | sha256sum
}
