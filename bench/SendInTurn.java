import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** `SendInTurn NAMESRV TOPIC COUNT`: sends COUNT messages of 128 bytes one after the other, after as many to warm up. */
public class SendInTurn {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        DefaultMQProducer producer = new DefaultMQProducer("bench-java");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        long[] latenciesNs = new long[count];
        send(producer, args[1], latenciesNs);
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpuNs = process.getProcessCpuTime();
        long beganNs = System.nanoTime();
        send(producer, args[1], latenciesNs);
        double wallNs = System.nanoTime() - beganNs;
        cpuNs = process.getProcessCpuTime() - cpuNs;
        producer.shutdown();
        Arrays.sort(latenciesNs);
        System.out.printf(
            "%n{\"rate\": %f, \"cpu_us\": %f, \"p99_us\": %f}%n",
            count / wallNs * 1e9, cpuNs / 1e3 / count, latenciesNs[count * 99 / 100] / 1e3);
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, long[] latenciesNs) throws Exception {
        for (int i = 0; i < latenciesNs.length; i++) {
            long beganNs = System.nanoTime();
            producer.send(new Message(topic, "a", new byte[128]));
            latenciesNs[i] = System.nanoTime() - beganNs;
        }
    }
}
