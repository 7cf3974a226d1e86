"""An HTTP origin for real clients: `origin.py PORT DIRECTORY` serves files, a git repository, and paths whose
responses are chunked, late, endless or upgraded. See run.sh."""
import base64
import hashlib
import http.server
import os
import struct
import subprocess
import sys
import time

ROOT = os.path.abspath(sys.argv[2])
QUIET_S = float(os.environ.get('QUIET_S', '3'))
class H(http.server.SimpleHTTPRequestHandler):
    protocol_version='HTTP/1.1'
    def __init__(s,*a): super().__init__(*a,directory=ROOT)
    def log_message(s,*a): pass
    def body(s):
        if 'chunked' in s.headers.get('Transfer-Encoding','').lower():
            out=b''
            while True:
                n=int(s.rfile.readline().split(b';')[0],16)
                out+=s.rfile.read(n); s.rfile.readline()
                if n==0: return out
        return s.rfile.read(int(s.headers.get('Content-Length',0)))
    def send(s,code,body=b'',**h):
        s.send_response(code)
        for k,v in h.items(): s.send_header(k.replace('_','-'),v)
        if code not in (204,304): s.send_header('Content-Length',str(len(body)))
        s.end_headers()
        if s.command!='HEAD' and code not in (204,304): s.wfile.write(body)
    def git(s):
        path,_,q=s.path.partition('?')
        b=s.body()
        env=dict(os.environ,GIT_PROJECT_ROOT=ROOT+'/git',GIT_HTTP_EXPORT_ALL='1',PATH_INFO=path[4:],QUERY_STRING=q,REQUEST_METHOD=s.command,CONTENT_TYPE=s.headers.get('Content-Type',''),REMOTE_USER='x',REMOTE_ADDR='127.0.0.1',CONTENT_LENGTH=str(len(b)),HTTP_CONTENT_ENCODING=s.headers.get('Content-Encoding',''),GIT_PROTOCOL=s.headers.get('Git-Protocol',''))
        time.sleep(2.5 if 'upload-pack' in path and s.command=='POST' else 0)  # a slow backend
        o=subprocess.run(['git','http-backend'],input=b,env=env,capture_output=True).stdout
        head,_,rest=o.partition(b'\r\n\r\n'); code=200; hs=[]
        for l in head.decode().split('\r\n'):
            k,_,v=l.partition(': ')
            if k=='Status': code=int(v.split()[0])
            else: hs.append((k,v))
        s.send_response(code)
        for k,v in hs: s.send_header(k,v)
        s.send_header('Transfer-Encoding','chunked'); s.end_headers()
        for i in range(0,len(rest),7000):
            c=rest[i:i+7000]; s.wfile.write(b'%x\r\n'%len(c)+c+b'\r\n')
        s.wfile.write(b'0\r\n\r\n')
    def do_GET(s):
        p=s.path.split('?')[0]
        if p.startswith('/git/'): return s.git()
        if p=='/echo': return s.send(200,('%s %s\n%s'%(s.command,s.path,s.headers)).encode(),Content_Type='text/plain')
        if p=='/204': return s.send(204)
        if p=='/304': return s.send(304,ETag='"x"')
        if p=='/redirect': return s.send(302,b'',Location='/echo')
        if p=='/slow': time.sleep(4); return s.send(200,b'slow')
        if p=='/chunked':
            s.send_response(200); s.send_header('Transfer-Encoding','chunked'); s.send_header('Trailer','X-End'); s.end_headers()
            for i in range(50): s.wfile.write(b'5;x=y\r\nhello\r\n')
            s.wfile.write(b'0\r\nX-End: 1\r\n\r\n'); return
        if p=='/close':
            s.send_response(200); s.send_header('Connection','close'); s.end_headers(); s.wfile.write(b'until close'); s.close_connection=True; return
        if p=='/sse':
            s.send_response(200); s.send_header('Content-Type','text/event-stream'); s.send_header('Transfer-Encoding','chunked'); s.end_headers()
            for i in range(4):
                d=b'data: %d\n\n'%i; s.wfile.write(b'%x\r\n'%len(d)+d+b'\r\n'); s.wfile.flush(); time.sleep(1 if i!=1 else QUIET_S)
            s.wfile.write(b'0\r\n\r\n'); return
        if p=='/ws':
            k=s.headers['Sec-WebSocket-Key']; a=base64.b64encode(hashlib.sha1((k+'258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest()).decode()
            s.send_response(101); s.send_header('Upgrade','websocket'); s.send_header('Connection','Upgrade'); s.send_header('Sec-WebSocket-Accept',a); s.end_headers(); s.wfile.flush()
            while True:
                h=s.rfile.read(2)
                if len(h)<2: break
                n=h[1]&127
                if n==126: n=struct.unpack('>H',s.rfile.read(2))[0]
                m=s.rfile.read(4); d=bytes(c^m[i%4] for i,c in enumerate(s.rfile.read(n)))
                if h[0]&15==8: s.wfile.write(b'\x88\x00'); break
                s.wfile.write(bytes([h[0]])+(bytes([n]) if n<126 else b'\x7e'+struct.pack('>H',n))+d); s.wfile.flush()
            s.close_connection=True; return
        return super().do_GET()
    def do_POST(s):
        if s.path.startswith('/git/'): return s.git()
        b=s.body(); s.send(200,hashlib.sha256(b).hexdigest().encode()+b' %d'%len(b),Content_Type='text/plain')
    do_PUT=do_POST
    do_PATCH=do_POST
    def do_DELETE(s): s.body(); s.send(204)
    def do_OPTIONS(s): s.send(204,Allow='GET, POST')
class S(http.server.ThreadingHTTPServer):
    daemon_threads=True; request_queue_size=512
S(('127.0.0.1',int(sys.argv[1])),H).serve_forever()
