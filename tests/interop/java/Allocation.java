import java.io.BufferedReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Shares out queues with the client's own classes. A line of the given file is a case: strategy, member, queues and
 * members, with tabs between; a queue is topic:broker:number, and lists have blanks between. For each case it writes the
 * queues of the member in a line.
 */
public class Allocation {
    public static void main(String[] args) throws Exception {
        try (BufferedReader cases = Files.newBufferedReader(Path.of(args[0]), StandardCharsets.UTF_8)) {
            for (String line = cases.readLine(); line != null; line = cases.readLine()) {
                String[] fields = line.split("\t", -1);
                List<MessageQueue> queues = queues(fields[2]);
                List<MessageQueue> mine = strategy(fields[0], queues)
                    .allocate("group", fields[1], queues, new ArrayList<>(Arrays.asList(fields[3].split(" "))));
                System.out.println(mine.stream().map(Allocation::text).collect(Collectors.joining(" ")));
            }
        }
    }

    static AllocateMessageQueueStrategy strategy(String words, List<MessageQueue> queues) {
        String[] named = words.split(" ");
        switch (named[0]) {
            case "averagely": return new AllocateMessageQueueAveragely();
            case "by_circle": return new AllocateMessageQueueAveragelyByCircle();
            case "consistent_hash": return new AllocateMessageQueueConsistentHash(Integer.parseInt(named[1]));
            case "near": return new AllocateMachineRoomNearby(strategy(named[1], queues), new Rooms());
            case "by_config":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues.subList(0, queues.size() / 2));
                return config;
            default:
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new LinkedHashSet<>(Arrays.asList(named).subList(1, named.length)));
                return rooms;
        }
    }

    /** The room is what stands before the first `@`. */
    static class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        public String consumerDeployIn(String member) {
            return member.split("@")[0];
        }
    }

    static List<MessageQueue> queues(String words) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String word : words.split(" ")) {
            String[] parts = word.split(":");
            queues.add(new MessageQueue(parts[0], parts[1], Integer.parseInt(parts[2])));
        }
        return queues;
    }

    static String text(MessageQueue queue) {
        return queue.getTopic() + ":" + queue.getBrokerName() + ":" + queue.getQueueId();
    }
}
