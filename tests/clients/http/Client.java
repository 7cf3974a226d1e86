import java.net.URI; import java.net.http.*; import java.util.*; import java.util.concurrent.*;
// Java's HttpClient: `java Client.java URL`.
public class Client { public static void main(String[] a) throws Exception { String u=a[0]; HttpClient c=HttpClient.newHttpClient();
 List<CompletableFuture<HttpResponse<String>>> l=new ArrayList<>();
 for (int i=0;i<100;i++) l.add(c.sendAsync(HttpRequest.newBuilder(URI.create(u+(i%2==0?"/echo":"/chunked"))).build(), HttpResponse.BodyHandlers.ofString()));
 for (var f:l) if (f.get().statusCode()!=200) throw new Exception("status "+f.get().statusCode());
 byte[] b=new byte[3000000]; var r=c.send(HttpRequest.newBuilder(URI.create(u+"/x")).POST(HttpRequest.BodyPublishers.ofByteArray(b)).build(), HttpResponse.BodyHandlers.ofString());
 if (!r.body().endsWith("3000000")) throw new Exception(r.body());
 r=c.send(HttpRequest.newBuilder(URI.create(u+"/x")).expectContinue(true).POST(HttpRequest.BodyPublishers.ofByteArray(b)).build(), HttpResponse.BodyHandlers.ofString());
 if (!r.body().endsWith("3000000")) throw new Exception("expect "+r.body());
 var q=new LinkedBlockingQueue<String>(); var w=c.newWebSocketBuilder().buildAsync(URI.create(u.replace("http","ws")+"/ws"), new WebSocket.Listener(){ public CompletionStage<?> onText(WebSocket s, CharSequence d, boolean last){ q.add(d.toString()); s.request(1); return null; }}).get();
 w.sendText("hello",true); if (!"hello".equals(q.poll(5,TimeUnit.SECONDS))) throw new Exception("ws"); System.exit(0); } }
