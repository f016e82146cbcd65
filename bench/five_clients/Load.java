import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** A load with Apache's own Java client of RocketMQ 5; load.py has the arguments and the output. */
public class Load {
    static final String TOPIC = "bench";
    static final Duration INVISIBLE = Duration.ofSeconds(60);
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static ClientConfiguration config;

    /** Counts finished calls. The clock runs from the end of the warm-up to the last call. */
    static class Tally {
        final int warmUp;
        final int last;
        final List<Long> times = new ArrayList<>();
        final CountDownLatch ended = new CountDownLatch(1);
        int done;
        int errors;
        String error = "";
        long began;
        long cpu;
        String figures;

        Tally(int warmUp, int count) {
            this.warmUp = warmUp;
            this.last = warmUp + count;
        }

        synchronized void take(long asked, Throwable failure) {
            done++;
            if (failure != null && errors++ == 0) {
                error = failure.toString().replace('"', '\'').replace('\n', ' ');
            }
            if (done > warmUp && done <= last) {
                times.add(System.nanoTime() - asked);
            }
            if (done == warmUp) {
                System.out.println("begin");
                began = System.nanoTime();
                cpu = cpuNanos();
            } else if (done == last) {
                double tookS = (System.nanoTime() - began) / 1e9;
                Collections.sort(times);
                figures = String.format(
                    "{\"rate\": %f, \"client_us\": %f, \"p99_ms\": %f, \"errors\": %d, \"error\": \"%s\"}",
                    times.size() / tookS, (cpuNanos() - cpu) / 1e3 / times.size(),
                    times.get(times.size() * 99 / 100) / 1e6, errors, error);
                ended.countDown();
            }
        }

        boolean isEnded() {
            return ended.getCount() == 0;
        }

        void report() throws Exception {
            if (!ended.await(300, TimeUnit.SECONDS)) {
                throw new IllegalStateException(done + " calls in 300 s; " + error);
            }
            System.out.println(figures);
        }

        static long cpuNanos() {
            return ((com.sun.management.OperatingSystemMXBean)
                java.lang.management.ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
        }
    }

    public static void main(String[] args) throws Exception {
        config = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(30)).build();
        Tally tally = new Tally(Integer.parseInt(args[3]), Integer.parseInt(args[4]));
        if (args[1].equals("send")) {
            send(Integer.parseInt(args[2]), tally);
        } else {
            receive(Integer.parseInt(args[2]), tally);
        }
        tally.report();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void send(int inFlight, Tally tally) throws Exception {
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(config).setTopics(TOPIC).build();
        byte[] body = new byte[128];
        Semaphore room = new Semaphore(inFlight);
        while (!tally.isEnded()) {
            Message message = PROVIDER.newMessageBuilder().setTopic(TOPIC).setBody(body).build();
            room.acquire();
            long asked = System.nanoTime();
            producer.sendAsync(message).whenComplete((receipt, failure) -> {
                tally.take(asked, failure);
                room.release();
            });
        }
    }

    static void receive(int inFlight, Tally tally) throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(config)
            .setConsumerGroup("bench")
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(TOPIC, FilterExpression.SUB_ALL))
            .build();
        System.out.println("ready");
        System.in.read();
        for (int number = 0; number < inFlight; number++) {
            ask(consumer, tally);
        }
    }

    static void ask(SimpleConsumer consumer, Tally tally) {
        if (tally.isEnded()) {
            return;
        }
        consumer.receiveAsync(32, INVISIBLE).whenComplete((messages, failure) -> {
            if (failure == null) {
                for (MessageView message : messages) {
                    long asked = System.nanoTime();
                    consumer.ackAsync(message).whenComplete((nothing, late) -> tally.take(asked, late));
                }
            }
            ask(consumer, tally);
        });
    }
}
