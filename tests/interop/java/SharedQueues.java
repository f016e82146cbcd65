import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Three push consumers that leave the sharing of queues to the broker: `NAMESRV TOPIC GROUP COUNT LIMIT_S`. */
public class SharedQueues {
    private static final String FAILS_ONCE = "fails once";

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        Map<String, AtomicInteger> seen = new ConcurrentHashMap<>();
        AtomicInteger popped = new AtomicInteger();
        for (int member = 0; member < 3; member++) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
            consumer.setNamesrvAddr(args[0]);
            consumer.setInstanceName("member" + member);
            consumer.setClientRebalance(false);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(args[1], "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                boolean isWell = true;
                for (MessageExt message : messages) {
                    if (message.getProperty("POP_CK") != null) popped.incrementAndGet();
                    String body = new String(message.getBody());
                    int times = seen.computeIfAbsent(body, key -> new AtomicInteger()).incrementAndGet();
                    isWell &= !body.equals(FAILS_ONCE) || times > 1;
                }
                return isWell ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
            consumer.start();
        }
        DefaultMQProducer producer = new DefaultMQProducer("SharedQueues");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        producer.send(new Message(args[1], FAILS_ONCE.getBytes()));
        for (int number = 0; number < count; number++) {
            producer.send(new Message(args[1], ("" + number).getBytes()));
        }
        long end = System.currentTimeMillis() + Integer.parseInt(args[4]) * 1000L;
        while (System.currentTimeMillis() < end && (seen.size() <= count || seen.get(FAILS_ONCE).get() < 2)) {
            Thread.sleep(100);
        }
        AtomicInteger tries = seen.remove(FAILS_ONCE);
        long once = seen.values().stream().filter(times -> times.get() == 1).count();
        System.out.println("once " + once + ", tries " + tries + ", popped " + popped.get());
        System.exit(0);
    }
}
