import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** A program with Apache's own Java client of RocketMQ 5: what puppet.py does. Puppet ENDPOINTS TASK prints JSON. */
public class Puppet {
    static final Duration LIMIT = Duration.ofSeconds(60);
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static ClientConfiguration config;

    public static void main(String[] args) throws Exception {
        config = ClientConfiguration.newBuilder().setEndpoints(args[0])
            .enableSsl(System.getenv("TLS") != null).build();
        switch (args[1]) {
            case "sends_and_receives" -> System.out.println(sendsAndReceives());
            case "pushes" -> System.out.println(pushes());
            case "ends_transactions" -> System.out.println(endsTransactions());
            case "is_asked" -> System.out.println(isAsked());
            case "settles" -> System.out.println(settles());
            case "recalls" -> System.out.println(recalls());
            default -> throw new IllegalArgumentException(args[1]);
        }
        System.exit(0);
    }

    static MessageBuilder outgoing(String body) {
        return PROVIDER.newMessageBuilder().setTopic("orders").setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static String text(ByteBuffer body) {
        return StandardCharsets.UTF_8.decode(body).toString();
    }

    static Producer producer() throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(config).setTopics("orders").build();
    }

    static String sendsAndReceives() throws Exception {
        Producer producer = producer();
        for (int number = 0; number < 20; number++) {
            producer.send(outgoing("m" + number).setTag(number < 19 ? "a" : "b").setKeys("k" + number)
                .addProperty("own", "x").build());
        }
        producer.sendAsync(outgoing("later").setTag("a").build()).get(60, TimeUnit.SECONDS);
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(config)
            .setConsumerGroup("simple")
            .setAwaitDuration(Duration.ofSeconds(3))
            .setSubscriptionExpressions(Collections.singletonMap("orders", new FilterExpression("a")))
            .build();
        TreeSet<String> found = new TreeSet<>();
        long end = System.nanoTime() + LIMIT.toNanos();
        while (found.size() < 20 && System.nanoTime() < end) {
            for (MessageView message : consumer.receive(32, Duration.ofSeconds(15))) {
                List<String> keys = new ArrayList<>();
                message.getKeys().forEach(key -> keys.add("\"" + key + "\""));
                List<String> properties = new ArrayList<>();
                message.getProperties().forEach((name, value) -> properties.add("\"" + name + "\":\"" + value + "\""));
                found.add(String.format("[\"%s\",\"%s\",[%s],{%s}]", text(message.getBody()), message.getTag().get(),
                    String.join(",", keys), String.join(",", properties)));
                consumer.ack(message);
            }
        }
        return found.toString();
    }

    static String pushes() throws Exception {
        Producer producer = producer();
        for (int number = 0; number < 20; number++) {
            producer.send(outgoing("f" + number).setMessageGroup("g" + number % 8).build());
        }
        BlockingQueue<String> bodies = new LinkedBlockingQueue<>();
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(config)
            .setConsumerGroup("push")
            .setSubscriptionExpressions(Collections.singletonMap("orders", FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                if (message.getDeliveryAttempt() == 1) { // it comes again after a second
                    return ConsumeResult.FAILURE;
                }
                bodies.add(text(message.getBody()));
                return ConsumeResult.SUCCESS;
            })
            .build();
        TreeSet<String> found = new TreeSet<>();
        long end = System.nanoTime() + LIMIT.toNanos();
        while (found.size() < 20 && System.nanoTime() < end) {
            found.add("\"" + bodies.poll(60, TimeUnit.SECONDS) + "\"");
        }
        return found.toString();
    }

    static String isAsked() throws Exception {
        BlockingQueue<String> bodies = new LinkedBlockingQueue<>();
        PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(config)
            .setConsumerGroup("push")
            .setSubscriptionExpressions(Collections.singletonMap("orders", FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                String body = text(message.getBody());
                bodies.add(body);
                return body.equals("bad") ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build();
        return "[\"" + bodies.poll(60, TimeUnit.SECONDS) + "\",\"" + bodies.poll(60, TimeUnit.SECONDS) + "\"]";
    }

    static String endsTransactions() throws Exception {
        BlockingQueue<String> asked = new LinkedBlockingQueue<>();
        Producer producer = PROVIDER.newProducerBuilder()
            .setClientConfiguration(config)
            .setTopics("orders")
            .setTransactionChecker(message -> {
                asked.add(message.getMessageId().toString());
                return TransactionResolution.COMMIT;
            })
            .build();
        Transaction now = producer.beginTransaction();
        producer.send(outgoing("now").build(), now);
        now.commit();
        SendReceipt receipt = producer.send(outgoing("asked").build(), producer.beginTransaction());
        String question = asked.poll(60, TimeUnit.SECONDS);
        return "[20000," + receipt.getMessageId().toString().equals(question) + "]";
    }

    static MessageView next(SimpleConsumer consumer, Duration invisible) throws Exception {
        long end = System.nanoTime() + LIMIT.toNanos();
        while (System.nanoTime() < end) {
            for (MessageView message : consumer.receive(1, invisible)) {
                return message;
            }
        }
        throw new IllegalStateException("no message came");
    }

    static String settles() throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(config)
            .setConsumerGroup("settle")
            .setAwaitDuration(Duration.ofSeconds(3))
            .setSubscriptionExpressions(Collections.singletonMap("orders",
                new FilterExpression("amount > 3", FilterExpressionType.SQL92)))
            .build();
        Producer producer =
            PROVIDER.newProducerBuilder().setClientConfiguration(config).setTopics("orders", "fifo").build();
        producer.send(outgoing("small").addProperty("amount", "1").build());
        producer.send(outgoing("large").addProperty("amount", "5").build());
        MessageView first = next(consumer, Duration.ofSeconds(300));
        consumer.changeInvisibleDuration(first, Duration.ofSeconds(10));
        MessageView again = next(consumer, Duration.ofSeconds(15));
        consumer.ack(again);
        producer.send(outgoing("in order").setTopic("fifo").setMessageGroup("g").build());
        boolean isRefused = false;
        try {
            producer.send(outgoing("normal").setTopic("fifo").build());
        } catch (ClientException | IllegalArgumentException refused) {
            isRefused = true;
        }
        return String.format("[[\"%s\",%d],[\"%s\",%d],%b]", text(first.getBody()), first.getDeliveryAttempt(),
            text(again.getBody()), again.getDeliveryAttempt(), isRefused);
    }

    /** The recall is looked up by name: clients before 5.1.0 do not have it, and run the other tasks. */
    static String recalls() throws Exception {
        Producer producer = producer();
        Message late = outgoing("never").setDeliveryTimestamp(System.currentTimeMillis() + 600_000).build();
        SendReceipt receipt = producer.send(late);
        Object handle = SendReceipt.class.getMethod("getRecallHandle").invoke(receipt);
        Object recalled =
            Producer.class.getMethod("recallMessage", String.class, String.class).invoke(producer, "orders", handle);
        Object id = Class.forName("org.apache.rocketmq.client.apis.producer.RecallReceipt").getMethod("getMessageId")
            .invoke(recalled);
        return String.valueOf(receipt.getMessageId().equals(id));
    }
}
