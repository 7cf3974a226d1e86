"""Python's HTTP clients: `client.py URL FILE`."""
import sys,http.client,urllib.request,hashlib,asyncio
U=sys.argv[1]; d=open(sys.argv[2],'rb').read(3_000_000); h=hashlib.sha256(d).hexdigest()
assert b'GET' in urllib.request.urlopen(U+'/echo').read()
c=http.client.HTTPConnection(U[7:])
for i in range(20):
    c.request('POST' if i%2 else 'GET','/echo',body=d if i%2 else None); r=c.getresponse(); b=r.read(); assert r.status==200,(i,r.status)
c.request('POST','/x',body=iter([d[:1000],d[1000:]]),encode_chunked=True,headers={'Transfer-Encoding':'chunked'}); assert h.encode() in c.getresponse().read()
import requests
s=requests.Session()
for i in range(10): assert s.get(U+'/chunked').text=='hello'*50
assert h in s.post(U+'/x',data=d).text
assert s.get(U+'/redirect').status_code==200
import httpx
with httpx.Client() as k:
    for i in range(10): assert k.get(U+'/echo').status_code==200
    with k.stream('GET',U+'/sse',timeout=30) as r: assert sum(1 for l in r.iter_lines() if l.startswith('data'))==4
import aiohttp
async def main():
    async with aiohttp.ClientSession() as s:
        async def one(i):
            async with s.get(U+('/echo' if i%2 else '/chunked')) as r: assert r.status==200; await r.read()
        async with asyncio.TaskGroup() as group:
            for i in range(200): group.create_task(one(i))
        async with s.ws_connect(U+'/ws') as w:
            for n in (5,200,60000):
                await w.send_str('x'*n); m=await w.receive(); assert m.data=='x'*n
asyncio.run(main())
