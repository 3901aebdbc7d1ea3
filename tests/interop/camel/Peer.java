// Apache Camel's Lumberjack component: a reader of both versions on Netty that shares no code with ours or Elastic's.
// java -cp JARS Peer.java PORT: prints each event as a line of JSON, and ends when its standard input does.

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.impl.DefaultCamelContext;

public class Peer {
    public static void main(String[] arguments) throws Exception {
        String from = "lumberjack:127.0.0.1:" + arguments[0];
        ObjectMapper json = new ObjectMapper();
        try (DefaultCamelContext context = new DefaultCamelContext()) {
            context.addRoutes(new RouteBuilder() {
                @Override
                public void configure() {
                    from(from).process(exchange -> {
                        synchronized (System.out) {
                            System.out.println(json.writeValueAsString(exchange.getMessage().getBody()));
                            System.out.flush();
                        }
                    });
                }
            });
            context.start();
            System.out.println("listening 127.0.0.1:" + arguments[0]);
            while (System.in.read() >= 0) {
            }
        }
    }
}
