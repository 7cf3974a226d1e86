// Node's HTTP, WebSocket and EventSource clients: `client.mjs URL FILE`.
import http from 'http'; import {createHash} from 'crypto'; import {readFileSync} from 'fs';
const U=process.argv[2]; const big=readFileSync(process.argv[3]).subarray(0,3000000); const h=createHash('sha256').update(big).digest('hex');
const ok=(c,m)=>{ if(!c) { console.error('node: '+m); process.exit(1);} };
for (let i=0;i<50;i++) { const r=await fetch(U+(i%2?'/echo':'/chunked')); ok(r.status===200,'fetch '+r.status); await r.text(); }
let r=await fetch(U+'/x',{method:'POST',body:big}); ok((await r.text()).includes(h),'post');
const agent=new http.Agent({keepAlive:true,maxSockets:10});
await Promise.all(Array.from({length:100},(_,i)=>new Promise((res,rej)=>{ const q=http.request(U+'/x',{agent,method:'PUT'},r=>{ let b=''; r.on('data',d=>b+=d).on('end',()=>{ ok(r.statusCode===200,'put'); res(); }); }); q.on('error',rej); q.write('a'.repeat(1000)); q.end('b'); })));
agent.destroy();
const {WebSocket}=await import('undici');
await new Promise((res,rej)=>{ const w=new WebSocket(U.replace('http','ws')+'/ws'); w.onopen=()=>w.send('hello'); w.onmessage=e=>{ ok(e.data==='hello','ws'); w.close(); res(); }; w.onerror=e=>{ ok(false,'ws error '+e.message); }; });
const ws=(await import('ws')).default; await new Promise(res=>{ const w=new ws(U.replace('http','ws')+'/ws'); w.on('open',()=>w.send('x'.repeat(50000))); w.on('message',m=>{ ok(m.length===50000,'ws lib'); w.close(); res(); }); w.on('error',e=>ok(false,'ws lib '+e)); });
const {EventSource}=await import('undici');
await new Promise(res=>{ const e=new EventSource(U+'/sse'); const got=[]; e.onmessage=m=>{ got.push(m.data); if (got.length===4) { ok(got.join()==='0,1,2,3','sse '+got); e.close(); res(); } }; e.onerror=m=>ok(false,'sse '+m.message); });
process.exit(0);
