import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Plays one conversation of the Java client with a cluster: `Conversation NAMESRV SCENE`, with any 4.9 or 5.x client.
 * It prints one line for each fact worth checking and ends with "done"; an exception ends it with status 1.
 */
public class Conversation {
    static final String TOPIC = "GoldenTopic";
    static String namesrv;

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        switch (args[1]) {
            case "send": send(); break;
            case "transaction": transaction(); break;
            case "push": push(); break;
            case "sql": sql(); break;
            case "orderly": orderly(); break;
            case "pull": pull(); break;
            case "request": request(); break;
            case "online": online(); break;
            default: throw new IllegalArgumentException("no scene " + args[1]);
        }
        System.out.println("done");
        System.exit(0);
    }

    static void send() throws Exception {
        DefaultMQProducer producer = named(new DefaultMQProducer("golden-producer"));
        producer.setCompressMsgBodyOverHowmuch(1024);
        producer.start();
        Message rich = new Message(TOPIC, "TagA", "key-1 key-2", utf8("sync \u6d88\u606f"));
        rich.putUserProperty("colour", "blue");
        rich.putUserProperty("n", "7");
        say(producer.send(rich));
        producer.sendOneway(new Message(TOPIC, "TagB", "key-oneway", utf8("one-way")));
        CountDownLatch answered = new CountDownLatch(1);
        producer.send(new Message(TOPIC, "TagC", "key-async", utf8("async")), new SendCallback() {
            public void onSuccess(SendResult result) {
                say(result);
                answered.countDown();
            }

            public void onException(Throwable e) {
                e.printStackTrace();
            }
        });
        answered.await(5, TimeUnit.SECONDS);
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            batch.add(new Message(TOPIC, "TagA", "key-batch-" + i, utf8("batch " + i)));
        }
        say(producer.send(batch));
        Message delayed = new Message(TOPIC, "TagA", "key-delay", utf8("delayed"));
        delayed.setDelayTimeLevel(1);
        say(producer.send(delayed));
        say(producer.send(new Message(TOPIC, "TagA", "key-zip", utf8(String.join("", Collections.nCopies(300, "squeeze "))))));
        say(producer.send(new Message(TOPIC, "TagB", "key-order", utf8("to a chosen queue")), (queues, m, arg) -> queues.get((int) arg), 1));
        producer.shutdown();
    }

    /** One half message committed, one rolled back, one left open until the broker asks. */
    static void transaction() throws Exception {
        TransactionMQProducer producer = named(new TransactionMQProducer("golden-transactions"));
        CountDownLatch asked = new CountDownLatch(1);
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object wish) {
                return (LocalTransactionState) wish;
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                System.out.println("asked about " + message.getKeys());
                asked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (LocalTransactionState wish : LocalTransactionState.values()) {
            say(producer.sendMessageInTransaction(new Message(TOPIC, "TagT", "key-" + wish, utf8("half " + wish)), wish));
        }
        if (!asked.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the broker did not ask about the open transaction");
        }
        Thread.sleep(500);
        producer.shutdown();
    }

    /** Consumes TagA and TagB; the first message fails once and comes back. */
    static void push() throws Exception {
        DefaultMQPushConsumer consumer = named(new DefaultMQPushConsumer("golden-push"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "TagA || TagB");
        CountDownLatch cameBack = new CountDownLatch(1);
        AtomicInteger failures = new AtomicInteger(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                System.out.println("consumed " + message.getKeys() + " of " + message.getTopic() + " try " + message.getReconsumeTimes());
                if (message.getReconsumeTimes() > 0) {
                    cameBack.countDown();
                }
            }
            context.setDelayLevelWhenNextConsume(1);
            return failures.getAndDecrement() > 0 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!cameBack.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the failed message did not come back");
        }
        Thread.sleep(500);
        consumer.shutdown();
    }

    static void sql() throws Exception {
        DefaultMQPushConsumer consumer = named(new DefaultMQPushConsumer("golden-sql"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, MessageSelector.bySql("colour = 'blue' AND n BETWEEN 5 AND 9"));
        CountDownLatch seen = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            System.out.println("consumed " + messages.get(0).getKeys());
            seen.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!seen.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no message matched");
        }
        Thread.sleep(500);
        consumer.shutdown();
    }

    static void orderly() throws Exception {
        DefaultMQPushConsumer consumer = named(new DefaultMQPushConsumer("golden-orderly"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        CountDownLatch seen = new CountDownLatch(3);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> {
                System.out.println("consumed " + message.getKeys());
                seen.countDown();
            });
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        if (!seen.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("too few messages");
        }
        Thread.sleep(500);
        consumer.shutdown();
    }

    /** Offsets, time search, look-ups and a pull: what tools and pull consumers ask for. */
    @SuppressWarnings("deprecation")
    static void pull() throws Exception {
        DefaultMQPullConsumer consumer = named(new DefaultMQPullConsumer("golden-pull"));
        consumer.start();
        Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(TOPIC);
        MessageExt last = null;
        for (MessageQueue queue : queues) {
            long start = consumer.minOffset(queue), end = consumer.maxOffset(queue);
            System.out.println(queue.getQueueId() + " holds [" + start + ", " + end + ")");
            consumer.searchOffset(queue, 1_600_000_000_000L);
            consumer.earliestMsgStoreTime(queue);
            consumer.fetchConsumeOffset(queue, true);
            PullResult found = consumer.pull(queue, "*", start, 32);
            System.out.println(found.getPullStatus() + " next " + found.getNextBeginOffset());
            consumer.updateConsumeOffset(queue, found.getNextBeginOffset());
            if (found.getMsgFoundList() != null && !found.getMsgFoundList().isEmpty()) {
                last = found.getMsgFoundList().get(0);
            }
            System.out.println(consumer.pull(queue, "NoSuchTag", start, 32).getPullStatus());
            System.out.println(consumer.pull(queue, "*", end + 100, 32).getPullStatus());
        }
        System.out.println("viewed " + consumer.viewMessage(TOPIC, last.getMsgId()).getKeys());
        System.out.println("found " + consumer.queryMessage(TOPIC, "key-1", 32, 0, Long.MAX_VALUE).getMessageList().size());
        consumer.shutdown();
    }

    static void request() throws Exception {
        DefaultMQProducer replier = named(new DefaultMQProducer("golden-replier"));
        replier.start();
        DefaultMQPushConsumer consumer = named(new DefaultMQPushConsumer("golden-request"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("GoldenRequest", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                say(replier.send(MessageUtil.createReplyMessage(messages.get(0), utf8("answer"))));
            } catch (Exception e) {
                e.printStackTrace();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer asker = named(new DefaultMQProducer("golden-asker"));
        asker.start();
        Message answer = asker.request(new Message("GoldenRequest", "", utf8("question")), 30_000);
        System.out.println("answered " + new String(answer.getBody(), StandardCharsets.UTF_8));
        asker.shutdown();
        consumer.shutdown();
        replier.shutdown();
    }

    /** A producer and a consumer that stay until somebody ends them. */
    static void online() throws Exception {
        DefaultMQProducer producer = named(new DefaultMQProducer("golden-online-producer"));
        producer.start();
        say(producer.send(new Message(TOPIC, "TagA", "key-online", utf8("online"))));
        DefaultMQPushConsumer consumer = named(new DefaultMQPushConsumer("golden-online"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        CountDownLatch seen = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            seen.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        seen.await(30, TimeUnit.SECONDS);
        System.out.println("online");
        Thread.sleep(Long.MAX_VALUE);
    }

    /** No part of the machine shows in a client id made of these. */
    static <T extends ClientConfig> T named(T client) {
        client.setNamesrvAddr(namesrv);
        client.setClientIP("127.0.0.1");
        client.setInstanceName("golden-" + client.getClass().getSimpleName());
        return client;
    }

    static void say(SendResult result) {
        System.out.println(result.getSendStatus() + " " + result.getMessageQueue().getQueueId() + " " + result.getQueueOffset());
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
