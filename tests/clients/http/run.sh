#!/bin/bash
# Real HTTP clients against a service of flick in front of origin.py: `run.sh FLICK` starts both, plays every client once
# and prints those that fail. Run by hand, because the clients come from the network: it needs curl, git, wget, pip,
# apt-get, dpkg-deb, ab, wrk, hey, go, java 17, node 20 and the Python packages requests, httpx and aiohttp.
set -u
HERE=$(cd "$(dirname "$0")" && pwd) ROOT=$(cd "$(dirname "$0")/../../.." && pwd)
W=$(mktemp -d) WWW=$(mktemp -d) ok=0 bad=0
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
mkdir -p $WWW/git $WWW/simple/demopkg $WWW/apt/package/DEBIAN
head -c 20000000 /dev/urandom > $WWW/big
git init -q --bare $WWW/git/r.git && git -C $WWW/git/r.git config http.receivepack true
python3 - $WWW/simple/demopkg <<'END'
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1] + '/demopkg-1.0-py3-none-any.whl', 'w')
wheel.writestr('demopkg.py', 'x = 1\n')
wheel.writestr('demopkg-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: demopkg\nVersion: 1.0\n')
wheel.writestr('demopkg-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
wheel.writestr('demopkg-1.0.dist-info/RECORD', '')
wheel.close()
END
(cd $WWW/apt && printf 'Package: flickdemo\nVersion: 1.0\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' \
  > package/DEBIAN/control && dpkg-deb -b package flickdemo.deb > /dev/null && rm -r package \
  && dpkg-scanpackages . > Packages 2> /dev/null && gzip -k Packages)
(cd $W && cp $HERE/client.mjs . && npm install --silent undici@6 ws > /dev/null)
O=$(port) P=$(port)
python3 $HERE/origin.py $O $WWW 2> $W/origin.log & ORIGIN=$!
"$1" run $ROOT/examples/http_balancer/http_balancer.flick --listen client=127.0.0.1:$P --connect backends=127.0.0.1:$O 2> $W/flick.log & FLICK=$!
trap 'kill $ORIGIN $FLICK; rm -rf $W $WWW' EXIT
sleep 2
U=http://127.0.0.1:$P
t() { local n="$1"; shift; if out=$(timeout 120 "$@" 2>&1); then ok=$((ok+1)); else bad=$((bad+1)); echo "FAIL $n: $(echo "$out" | tail -3)"; fi; }
export WWW
big=$(sha256sum < $WWW/big | cut -d' ' -f1)
t curl11 curl -fsS $U/echo
t curl10 curl -fsS0 $U/chunked
t curl10keep bash -c "curl -fsS0v -H 'Connection: keep-alive' $U/echo $U/echo 2>&1 | grep -q 'Re-using existing'"
t curlkeep bash -c "curl -fsSv $U/echo $U/echo 2>&1 | grep -q 'Re-using existing'"
t curlhead curl -fsSI $U/big
t curl204 curl -fsS $U/204
t curl304 bash -c "[ \$(curl -sS -o /dev/null -w '%{http_code}' $U/304) = 304 ]"
t curlredir curl -fsSL $U/redirect
t curlchunked bash -c "[ \$(curl -fsS $U/chunked | wc -c) = 250 ]"
t curlclose bash -c "[ \"\$(curl -fsS $U/close)\" = 'until close' ]"
t curlslow curl -fsS $U/slow
t curlpost bash -c "curl -fsS --data-binary @$WWW/big $U/x | grep -q $big"
t curlpostchunk bash -c "curl -fsS -T - $U/x < $WWW/big | grep -q $big"
t curlexpect bash -c "curl -fsS -H 'Expect: 100-continue' --data-binary @$WWW/big $U/x | grep -q $big"
t curlslowup bash -c "head -c 40000 /dev/zero | curl -fsS --limit-rate 2000 -T - $U/x"
t curlrange bash -c "[ \$(curl -sS -r 0-99 $U/big | head -c 200 | wc -c) -ge 100 ]"
t curlproxy bash -c "curl -fsS -x $U $U/echo | grep -q 'GET /echo\|GET http'"
t curldelete curl -fsS -X DELETE $U/x
t curloptions curl -fsS -X OPTIONS $U/x
t curlgzip curl -fsS --compressed $U/echo
t wget bash -c "wget -qO- $U/big | sha256sum | grep -q $big"
t wget_c bash -c "cd $W && head -c 1000 $WWW/big > big && wget -qc $U/big && [ \$(stat -c %s big) -ge 20000000 ]"
t git_clone git clone -q $U/git/r.git $W/r
t git_push bash -c "cd $W/r && git config user.email a@b && git config user.name a && head -c 3000000 /dev/urandom > f && git add f && git commit -qm x && git push -q origin HEAD:refs/heads/b\$RANDOM"
t git_pull bash -c "cd $W/r && git fetch -q"
t pip pip3 download -q --no-deps --no-cache-dir --index-url $U/simple --trusted-host 127.0.0.1 -d $W demopkg==1.0
mkdir -p $W/apt/lists/partial $W/apt/cache/archives/partial; echo "deb [trusted=yes] $U/apt ./" > $W/apt/s.list
A="-o Dir::Etc::sourcelist=$W/apt/s.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$W/apt/lists -o Dir::Cache=$W/apt/cache -o APT::Sandbox::User=root"
t apt bash -c "apt-get $A update && cd $W && apt-get $A download flickdemo && ls flickdemo*deb"
t python python3 $HERE/client.py $U $WWW/big
t sse python3 $HERE/sse.py $U
t node node $W/client.mjs $U $WWW/big
t go go run $HERE/client.go $U
t java java $HERE/Client.java $U
t ab bash -c "ab -q -n 2000 -c 50 $U/echo | tee $W/ab | grep -q 'Failed requests: *0' && ! grep -q Non-2xx $W/ab"
t abk bash -c "ab -q -k -n 2000 -c 50 $U/echo | tee $W/ab | grep -q 'Failed requests: *0' && ! grep -q Non-2xx $W/ab && grep -q 'Keep-Alive requests: *[12]' $W/ab"
t wrk bash -c "! wrk -c 20 -d 2 $U/echo | grep -E 'Socket errors|Non-2xx'"
t hey bash -c "hey -n 1000 -c 20 $U/echo | grep -q '\[200\].*1000'"
echo "$ok clients passed, $bad failed"
[ $bad = 0 ]
