import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * A Java client that does what its standard input says: `Puppet NAMESRV`, with any 4.9 or 5.x client. One command a
 * line, words with tabs between: the verb, then name=value. Answers and deliveries are lines of JSON; deliveries name
 * their consumer.
 */
public class Puppet {
    static String namesrv;
    static DefaultMQProducer producer;
    static int producers;
    static final Map<String, TransactionMQProducer> transactional = new HashMap<>();
    static final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    static final Map<String, DefaultLitePullConsumer> pullers = new HashMap<>();

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        Scanner commands = new Scanner(System.in, StandardCharsets.UTF_8);
        while (commands.hasNextLine()) {
            String[] words = commands.nextLine().split("\t");
            Map<String, String> fields = new HashMap<>();
            for (int i = 1; i < words.length; i++) {
                String[] pair = words[i].split("=", 2);
                fields.put(pair[0], pair[1]);
            }
            try {
                say(obey(words[0], fields));
            } catch (Throwable e) {
                e.printStackTrace();
                say(facts("error", String.valueOf(e.getMessage())));
            }
        }
        consumers.values().forEach(DefaultMQPushConsumer::shutdown);
        pullers.values().forEach(DefaultLitePullConsumer::shutdown);
        transactional.values().forEach(DefaultMQProducer::shutdown);
        if (producer != null) {
            producer.shutdown();
        }
        System.exit(0);
    }

    static Map<String, Object> obey(String verb, Map<String, String> fields) throws Exception {
        switch (verb) {
            case "produce": return produce(fields);
            case "sync": return outcome(producer.send(message(fields)));
            case "async": return async(message(fields));
            case "oneway": producer.sendOneway(message(fields)); return facts("status", "OK");
            case "ordered": return outcome(producer.send(message(fields), (queues, m, shard) -> queues.get((int) shard % queues.size()), Integer.valueOf(fields.get("shard"))));
            case "batch": return batch(fields);
            case "request": return facts("body", utf8(producer.request(message(fields), 20_000).getBody()));
            case "transact": return transact(fields);
            case "consume": return consume(fields);
            case "stop": consumers.remove(fields.get("consumer")).shutdown(); return facts("stopped", true);
            case "recall": return recall(fields);
            case "pull": return pull(fields);
            case "look": return look(fields);
            case "serialization": return facts("type", RemotingCommand.getSerializeTypeConfigInThisServer().name());
            default: throw new IllegalArgumentException("no verb " + verb);
        }
    }

    static Map<String, Object> produce(Map<String, String> fields) throws Exception {
        if (producer != null) {
            producer.shutdown();
        }
        boolean traced = fields.containsKey("trace");
        producer = named(new DefaultMQProducer(fields.get("namespace"), fields.get("group"), signing(fields), traced, null), "producer" + ++producers);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return facts("started", true);
    }

    static Map<String, Object> async(Message message) throws Exception {
        CountDownLatch answered = new CountDownLatch(1);
        Map<String, Object> answer = new LinkedHashMap<>();
        producer.send(message, new SendCallback() {
            public void onSuccess(SendResult result) {
                answer.putAll(outcome(result));
                answered.countDown();
            }

            public void onException(Throwable e) {
                answer.put("error", String.valueOf(e.getMessage()));
                answered.countDown();
            }
        });
        answered.await(20, TimeUnit.SECONDS);
        return answer;
    }

    static Map<String, Object> batch(Map<String, String> fields) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (String body : fields.get("body").split("\\|")) {
            fields.put("body", body);
            messages.add(message(fields));
        }
        return outcome(producer.send(messages));
    }

    /** A half message whose property `now` tells what its transaction ends with, and `later` what the broker is told when it asks. */
    static Map<String, Object> transact(Map<String, String> fields) throws Exception {
        TransactionMQProducer sender = transactional.get(fields.get("group"));
        if (sender == null) {
            boolean traced = fields.containsKey("trace");
            sender = named(new TransactionMQProducer(null, fields.get("group"), null, traced, null), "transactions-" + fields.get("group"));
            sender.setTransactionListener(new TransactionListener() {
                public LocalTransactionState executeLocalTransaction(Message message, Object nothing) {
                    return state(message.getProperty("now"));
                }

                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    Map<String, Object> event = facts("consumer", "checks");
                    event.putAll(describe(message));
                    say(event);
                    return state(message.getProperty("later"));
                }
            });
            sender.start();
            transactional.put(fields.get("group"), sender);
        }
        Message half = message(fields);
        half.putUserProperty("now", fields.get("now"));
        half.putUserProperty("later", fields.getOrDefault("later", "unknown"));
        return outcome(sender.sendMessageInTransaction(half, null));
    }

    static LocalTransactionState state(String word) {
        switch (word) {
            case "commit": return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
            default: return LocalTransactionState.UNKNOW;
        }
    }

    static RPCHook signing(Map<String, String> fields) {
        return fields.containsKey("access") ? new AclClientRPCHook(new SessionCredentials(fields.get("access"), fields.get("secret"))) : null;
    }

    /** A push consumer that refuses the first `fail` deliveries of each message, and replies to requests. */
    static Map<String, Object> consume(Map<String, String> fields) throws Exception {
        String name = fields.get("consumer");
        boolean traced = fields.containsKey("trace");
        DefaultMQPushConsumer consumer = named(new DefaultMQPushConsumer(fields.get("namespace"), fields.get("group"), signing(fields), new AllocateMessageQueueAveragely(), traced, null), name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        boolean sql = "SQL92".equals(fields.get("type"));
        consumer.subscribe(fields.get("topic"), sql ? MessageSelector.bySql(fields.get("expression")) : MessageSelector.byTag(fields.get("expression")));
        if (fields.get("mode").equals("broadcasting")) {
            consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
        }
        consumer.setMaxReconsumeTimes(Integer.parseInt(fields.getOrDefault("retries", "-1")));
        int fail = Integer.parseInt(fields.getOrDefault("fail", "0"));
        Map<String, Integer> deliveries = new ConcurrentHashMap<>();
        if (fields.get("mode").equals("orderly")) {
            consumer.setSuspendCurrentQueueTimeMillis(100);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                deliver(name, messages.get(0), deliveries) <= fail ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                deliver(name, messages.get(0), deliveries) <= fail ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        }
        consumer.start();
        consumers.put(name, consumer);
        return facts("started", true);
    }

    static int deliver(String consumer, MessageExt message, Map<String, Integer> deliveries) {
        Map<String, Object> event = facts("consumer", consumer);
        event.putAll(describe(message));
        say(event);
        if (message.getProperty("REPLY_TO_CLIENT") != null) {
            try {
                producer.send(MessageUtil.createReplyMessage(message, utf8("re: " + utf8(message.getBody()))));
            } catch (Exception e) {
                e.printStackTrace();
            }
        }
        return deliveries.merge(utf8(message.getBody()), 1, Integer::sum);
    }

    /** What a lite pull consumer gets in its next poll that is not empty; it starts at its first call. */
    static Map<String, Object> pull(Map<String, String> fields) throws Exception {
        DefaultLitePullConsumer consumer = pullers.get(fields.get("group"));
        if (consumer == null) {
            consumer = named(new DefaultLitePullConsumer(fields.get("group")), "pull-" + fields.get("group"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setAutoCommit(false);
            consumer.subscribe(fields.get("topic"), fields.get("expression"));
            consumer.start();
            pullers.put(fields.get("group"), consumer);
        }
        List<Object> bodies = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 30_000;
        while (bodies.size() < Integer.parseInt(fields.get("count")) && System.currentTimeMillis() < deadline) {
            consumer.poll(1000).forEach(message -> bodies.add(utf8(message.getBody())));
        }
        consumer.commitSync(); // which only notes it down
        consumer.getOffsetStore().persistAll(consumer.assignment());
        return facts("bodies", bodies);
    }

    /** Looks messages up: by offset id and by key; tells the queues' bounds and a search by time. */
    static Map<String, Object> look(Map<String, String> fields) throws Exception {
        String topic = fields.get("topic");
        Map<String, Object> answer = facts("viewed", utf8(producer.viewMessage(topic, fields.get("id")).getBody()));
        QueryResult found = producer.queryMessage(topic, fields.get("keys"), 32, 0, Long.MAX_VALUE);
        List<Object> bodies = new ArrayList<>();
        found.getMessageList().forEach(message -> bodies.add(utf8(message.getBody())));
        answer.put("found", bodies);
        List<Object> bounds = new ArrayList<>();
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            bounds.add(producer.minOffset(queue) + ".." + producer.maxOffset(queue) + " from " + producer.searchOffset(queue, 1));
        }
        answer.put("bounds", bounds);
        return answer;
    }

    static Message message(Map<String, String> fields) {
        String body = fields.get("body").repeat(Integer.parseInt(fields.getOrDefault("times", "1")));
        Message message = new Message(fields.get("topic"), fields.getOrDefault("tags", ""), fields.getOrDefault("keys", ""), utf8(body));
        if (fields.containsKey("colour")) {
            message.putUserProperty("colour", fields.get("colour"));
        }
        fields.forEach((name, value) -> {
            if (name.startsWith("property.")) {
                MessageAccessor.putProperty(message, name.substring(9), value);
            }
        });
        if (fields.containsKey("delay")) {  // traces of what has a level of 0 say that it is delayed
            message.setDelayTimeLevel(Integer.parseInt(fields.get("delay")));
        }
        for (String setter : new String[] {"setDelayTimeMs", "setDelayTimeSec", "setDeliverTimeMs"}) {
            if (fields.containsKey(setter)) {
                only5(message, setter, long.class, Long.valueOf(fields.get(setter)));
            }
        }
        return message;
    }

    /** What 4.9's clients do not have, and so this cannot be compiled with. */
    static Object only5(Object of, String method, Class<?> kind, Object argument) {
        try {
            return of.getClass().getMethod(method, kind).invoke(of, argument);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(String.valueOf(error.getCause() == null ? error : error.getCause()), error);
        }
    }

    static Map<String, Object> recall(Map<String, String> fields) throws Exception {
        Object id = producer.getClass().getMethod("recallMessage", String.class, String.class)
            .invoke(producer, fields.get("topic"), fields.get("handle"));
        return facts("id", String.valueOf(id));
    }

    static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> facts = facts("topic", message.getTopic());
        facts.put("body", utf8(message.getBody()));
        facts.put("tags", message.getTags() == null ? "" : message.getTags());
        facts.put("keys", message.getKeys() == null ? "" : message.getKeys());
        facts.put("colour", message.getProperties().getOrDefault("colour", ""));
        facts.put("queue", message.getQueueId());
        facts.put("offset", message.getQueueOffset());
        facts.put("retries", message.getReconsumeTimes());
        facts.put("born", message.getBornTimestamp());
        facts.put("stored", message.getStoreTimestamp());
        facts.put("size", message.getStoreSize());
        facts.put("id", message.getMsgId());
        return facts;
    }

    static Map<String, Object> outcome(SendResult result) {
        Map<String, Object> facts = facts("status", result.getSendStatus().name().replace("SEND_", ""));
        facts.put("id", result.getMsgId());
        facts.put("offset_id", String.valueOf(result.getOffsetMsgId()));
        facts.put("queue", result.getMessageQueue().getQueueId());
        facts.put("offset", result.getQueueOffset());
        try {
            facts.put("handle", String.valueOf(result.getClass().getMethod("getRecallHandle").invoke(result)));
        } catch (ReflectiveOperationException older) {
            facts.put("handle", "");
        }
        return facts;
    }

    /** Each client is an instance of its own, as if it were alone in its process. */
    static <T extends ClientConfig> T named(T client, String name) {
        client.setNamesrvAddr(namesrv);
        client.setClientIP("127.0.0.1");
        client.setInstanceName(name);
        // A start that missed a route, or in 5.x the turn of its heartbeat, would wait 30 s for the next.
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        return client;
    }

    static Map<String, Object> facts(String name, Object value) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put(name, value);
        return facts;
    }

    static void say(Map<String, Object> facts) {
        System.out.println(json(facts));
    }

    static String json(Object value) {
        if (value instanceof Map) {
            List<String> pairs = new ArrayList<>();
            ((Map<?, ?>) value).forEach((name, each) -> pairs.add(json(name) + ":" + json(each)));
            return "{" + String.join(",", pairs) + "}";
        }
        if (value instanceof Collection) {
            List<String> items = new ArrayList<>();
            ((Collection<?>) value).forEach(each -> items.add(json(each)));
            return "[" + String.join(",", items) + "]";
        }
        if (value instanceof Number || value instanceof Boolean) {
            return value.toString();
        }
        StringBuilder text = new StringBuilder("\"");
        for (char c : value.toString().toCharArray()) {
            text.append(c < 32 || c == '"' || c == '\\' || c > 126 ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return text.append('"').toString();
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String utf8(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
