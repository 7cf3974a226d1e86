# A server of ssh with a key of its own; a file goes there, and comes back.
setup() {
    ssh-keygen -q -t ed25519 -N '' -f host && ssh-keygen -q -t ed25519 -N '' -f user
    seq 1 300000 > file && cp user.pub authorized
    cat > sshd_config <<END
ListenAddress 127.0.0.1:$port
HostKey $dir/host
AuthorizedKeysFile $dir/authorized
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
END
    # The package's unit makes it at its start.
    [ "$(id -u)" != 0 ] || mkdir -p /run/sshd
}
server() { exec /usr/sbin/sshd -D -e -f "$dir/sshd_config" 2> "$dir/log"; }
client() {
    options='-F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null'
    options="$options -o LogLevel=ERROR -o IdentitiesOnly=yes"
    ssh="ssh $options -i $dir/user -p $port $(id -un)@127.0.0.1"
    # Not by pipes: ssh has one descriptor of them, so that they move beside the connection, which does not.
    $ssh cat < "$dir/file" > "$dir/first"
    $ssh "sha256sum < $dir/file; seq 1 200000" < /dev/null > "$dir/second"
    sha256sum < "$dir/first"
    sha256sum < "$dir/second"
}
