import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** Pops with Apache's client of 5.x: `Pops ADDRESS BROKER-NAME TOPIC GROUP`. Writes what it got, a line for each step. */
public class Pops {
    static MQClientAPIImpl api;
    static String address;
    static String broker;
    static String topic;
    static String group;

    public static void main(String[] args) throws Exception {
        address = args[0];
        broker = args[1];
        topic = args[2];
        group = args[3];
        MQClientInstance client = MQClientManager.getInstance().getOrCreateMQClientInstance(new ClientConfig());
        api = client.getMQClientAPIImpl();
        api.start();

        List<MessageExt> first = pop(10_000, false);
        System.out.println("first " + bodies(first));
        System.out.println("second " + bodies(pop(10_000, false)));
        System.out.println("ack " + ack(first.get(0).getProperty("POP_CK")));
        System.out.println("ack again " + ack(first.get(0).getProperty("POP_CK")));
        AckResult changed = change(first.get(1).getProperty("POP_CK"), 60_000);
        System.out.println("change " + changed.getStatus());
        System.out.println("old handle " + ack(first.get(1).getProperty("POP_CK")));
        System.out.println("new handle " + ack(changed.getExtraInfo()));
        List<MessageExt> again = new ArrayList<>();
        while (again.size() < 2) {
            again.addAll(pop(30_000, false));
        }
        System.out.println("again " + bodies(again));
        List<String> handles = new ArrayList<>();
        for (MessageExt message : again) {
            handles.add(message.getProperty("POP_CK"));
        }
        CompletableFuture<AckResult> batch = new CompletableFuture<>();
        api.batchAckMessageAsync(address, 5000, into(batch), topic, group, handles);
        System.out.println("batch " + batch.get(10, TimeUnit.SECONDS).getStatus());
        System.exit(0);
    }

    static List<MessageExt> pop(long invisibleMs, boolean order) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(-1);
        header.setMaxMsgNums(32);
        header.setInvisibleTime(invisibleMs);
        header.setInitMode(1);
        header.setExpType("TAG");
        header.setExp("*");
        header.setOrder(order);
        header.setPollTime(1000);
        header.setBornTime(System.currentTimeMillis());
        CompletableFuture<PopResult> done = new CompletableFuture<>();
        api.popMessageAsync(broker, address, header, 15_000, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                done.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                done.completeExceptionally(error);
            }
        });
        List<MessageExt> found = done.get(20, TimeUnit.SECONDS).getMsgFoundList();
        return found == null ? List.of() : found;
    }

    static String bodies(List<MessageExt> messages) {
        List<String> words = new ArrayList<>();
        for (MessageExt message : messages) {
            words.add(new String(message.getBody()) + ":" + message.getReconsumeTimes());
        }
        words.sort(null);
        return words.toString();
    }

    static Object ack(String handle) throws Exception {
        String[] words = ExtraInfoUtil.split(handle);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(words, topic, group));
        header.setQueueId(ExtraInfoUtil.getQueueId(words));
        header.setOffset(ExtraInfoUtil.getQueueOffset(words));
        header.setConsumerGroup(group);
        header.setExtraInfo(handle);
        CompletableFuture<AckResult> done = new CompletableFuture<>();
        api.ackMessageAsync(address, 5000, into(done), header);
        return done.get(10, TimeUnit.SECONDS).getStatus();
    }

    static AckResult change(String handle, long invisibleMs) throws Exception {
        String[] words = ExtraInfoUtil.split(handle);
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(words, topic, group));
        header.setQueueId(ExtraInfoUtil.getQueueId(words));
        header.setOffset(ExtraInfoUtil.getQueueOffset(words));
        header.setConsumerGroup(group);
        header.setExtraInfo(handle);
        header.setInvisibleTime(invisibleMs);
        CompletableFuture<AckResult> done = new CompletableFuture<>();
        api.changeInvisibleTimeAsync(broker, address, header, 5000, into(done));
        return done.get(10, TimeUnit.SECONDS);
    }

    static AckCallback into(CompletableFuture<AckResult> done) {
        return new AckCallback() {
            @Override
            public void onSuccess(AckResult result) {
                done.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                done.completeExceptionally(error);
            }
        };
    }
}
