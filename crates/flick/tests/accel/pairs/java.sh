# HttpServer and HttpClient of Java 17.
java=$(ls -d /usr/lib/jvm/java-17-openjdk-*/bin | head -n 1)
setup() {
    cat > Server.java <<'END'
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
public class Server {
    public static void main(String[] arguments) throws Exception {
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
        server.createContext("/", exchange -> {
            byte[] bytes = ("answer " + exchange.getRequestURI() + "x".repeat(500)).getBytes();
            exchange.sendResponseHeaders(200, bytes.length);
            exchange.getResponseBody().write(bytes);
            exchange.close();
        });
        server.start();
    }
}
END
    cat > Client.java <<'END'
import java.net.URI;
import java.net.http.*;
public class Client {
    public static void main(String[] arguments) throws Exception {
        var client = HttpClient.newHttpClient();
        var digest = java.security.MessageDigest.getInstance("SHA-256");
        for (int i = 0; i < 300; i++) {
            var request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + arguments[0] + "/" + i)).build();
            digest.update(client.send(request, HttpResponse.BodyHandlers.ofByteArray()).body());
        }
        System.out.println(new java.math.BigInteger(1, digest.digest()).toString(16));
    }
}
END
    "$java/javac" -d . Server.java Client.java
}
server() { exec "$java/java" -Dsun.net.httpserver.nodelay=true -XX:TieredStopAtLevel=1 -cp "$dir" Server "$port"; }
client() { "$java/java" -XX:TieredStopAtLevel=1 -cp "$dir" Client "$port"; }
