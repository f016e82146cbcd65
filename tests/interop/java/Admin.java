import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Scanner;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's admin tool for many commands in a row: a JVM for each would cost a second. One command a line, its words
 * with tabs between; the answer is a line of JSON with what it wrote. A command that ends the process ends this one,
 * unless there may be a security manager (Java 17 to 23, -Djava.security.manager=allow): then the answer has its status.
 *
 * The extra command `online NAMESRV TOPIC` starts a producer and a consumer for the others to look at; it answers when
 * everything was consumed and the broker was told so.
 */
public class Admin {
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        if (System.getProperty("java.security.manager") != null) {
            System.setSecurityManager(new Staying());
        }
        Scanner commands = new Scanner(System.in, StandardCharsets.UTF_8);
        while (commands.hasNextLine()) {
            String[] words = commands.nextLine().split("\t", -1);
            if (words[0].equals("online")) {
                online(words[1], words[2]);
                answers.println("{\"online\":true}");
                continue;
            }
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            PrintStream usualErr = System.err;
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int exit = 0;
            try {
                Tool.run(words);
            } catch (Ended ended) {
                exit = ended.status;
            }
            System.setErr(usualErr);
            answers.println("{\"out\":" + quoted(out) + ",\"err\":" + quoted(err) + ",\"exit\":" + exit + "}");
        }
        Runtime.getRuntime().halt(0);
    }

    /** Not an exception, or the tool would catch it. */
    static class Ended extends Error {
        final int status;

        Ended(int status) {
            this.status = status;
        }
    }

    static class Staying extends SecurityManager {
        @Override
        public void checkExit(int status) {
            throw new Ended(status);
        }

        @Override
        public void checkPermission(java.security.Permission permission) {
        }
    }

    static class Tool {
        static void run(String[] words) throws IllegalAccessException {
            for (Field field : MQAdminStartup.class.getDeclaredFields()) {
                if (field.getType() == List.class) { // 4.9 and 5.4 name it differently
                    field.setAccessible(true);
                    ((List<?>) field.get(null)).clear(); // commands keep what they opened; main0 makes new ones
                }
            }
            MQAdminStartup.main0(words, null);
        }
    }

    static void online(String namesrv, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("admin-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName("admin-online");
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("admin-consumer");
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("admin-online");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "TagA || TagB");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        Message message = new Message(topic, "TagA", "online", "online".getBytes());
        SendResult sent = producer.send(message, (queues, m, i) -> queues.get(1), null);
        OffsetStore offsets = consumer.getOffsetStore();
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            boolean isLast = queue.getQueueId() == sent.getMessageQueue().getQueueId();  // Apache's queues lag behind answers
            long end = isLast ? sent.getQueueOffset() + 1 : producer.maxOffset(queue);
            while (offsets.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY) < end) {
                Thread.sleep(20);
            }
            // One after the other: of a group's first commits, Apache's broker loses one of two that come together.
            offsets.updateConsumeOffsetToBroker(queue, offsets.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY), false);
        }
    }

    static String quoted(ByteArrayOutputStream bytes) {
        StringBuilder text = new StringBuilder("\"");
        for (char c : bytes.toString(StandardCharsets.UTF_8).toCharArray()) {
            text.append(c < 32 || c == '"' || c == '\\' || c > 126 ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return text.append('"').toString();
    }
}
