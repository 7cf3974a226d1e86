# redis, which forks to rewrite its log of commands while it answers.
server() { exec redis-server --port "$port" --dir "$dir" --save '' --appendonly yes --logfile "$dir/log"; }
client() {
    cli="redis-cli -p $port"
    $cli FLUSHALL
    seq 1 2000 | sed 's/.*/SET k& value-&-&/' | $cli | sort | uniq -c
    $cli BGREWRITEAOF
    seq 1 2000 | sed 's/.*/GET k&/' | $cli | sha256sum
    $cli DBSIZE
    while ! $cli INFO persistence | grep -q 'aof_rewrite_in_progress:0'; do sleep 0.02; done
    $cli INFO persistence | grep -o 'aof_last_bgrewrite_status:ok'
    redis-benchmark -p "$port" -t get,set -n 5000 -c 5 -q | grep -c 'requests per second'
}
