// The Go client of Apache RocketMQ as a program that does what its standard input says; see clients.py.
//
// One command a line, words with tabs between: the verb, then name=value. Answers and deliveries are lines of JSON;
// deliveries name their consumer.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type facts map[string]any
type fields map[string]string

var (
	namesrv   []string
	sender    rocketmq.Producer
	consumers = map[string]rocketmq.PushConsumer{}
	speaking  sync.Mutex
	names     int
)

func main() {
	namesrv = []string{os.Args[1]}
	rlog.SetLogLevel("error")
	commands := bufio.NewScanner(os.Stdin)
	commands.Buffer(nil, 1<<20)
	for commands.Scan() {
		words := strings.Split(commands.Text(), "\t")
		given := fields{}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			given[name] = value
		}
		answer, err := obey(words[0], given)
		if err != nil {
			answer = facts{"error": err.Error()}
		}
		say(answer)
	}
	for _, each := range consumers {
		each.Shutdown()
	}
	if sender != nil {
		sender.Shutdown()
	}
}

func obey(verb string, given fields) (facts, error) {
	switch verb {
	case "produce":
		return produce(given)
	case "sync", "ordered":
		return outcome(sender.SendSync(context.Background(), message(given)))
	case "async":
		return async(given)
	case "oneway":
		return facts{"status": "OK"}, sender.SendOneWay(context.Background(), message(given))
	case "batch":
		return batch(given)
	case "request":
		return request(given)
	case "transact":
		return transact(given)
	case "pull":
		return pull(given)
	case "consume":
		return consume(given)
	case "stop":
		err := consumers[given["consumer"]].Shutdown()
		delete(consumers, given["consumer"])
		return facts{"stopped": true}, err
	}
	return nil, errors.New("no verb " + verb)
}

func produce(given fields) (facts, error) {
	options := append(producerOptions(given), producer.WithQueueSelector(chosen{producer.NewRoundRobinQueueSelector()}))
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	if sender != nil {
		sender.Shutdown()
	}
	sender = made
	return facts{"started": true}, sender.Start()
}

func producerOptions(given fields) []producer.Option {
	options := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver(namesrv)),
		producer.WithGroupName(given["group"]),
		producer.WithInstanceName(name("producer")),
		producer.WithSendMsgTimeout(10 * time.Second),
		producer.WithRetry(2),
	}
	if given["namespace"] != "" {
		options = append(options, producer.WithNamespace(given["namespace"]))
	}
	if given["access"] != "" {
		options = append(options, producer.WithCredentials(credentials(given)))
	}
	if given["trace"] != "" {
		options = append(options, producer.WithTrace(traced(given)))
	}
	return options
}

func async(given fields) (facts, error) {
	type answer struct {
		result *primitive.SendResult
		err    error
	}
	answered := make(chan answer, 1)
	err := sender.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
		answered <- answer{result, err}
	}, message(given))
	if err != nil {
		return nil, err
	}
	got := <-answered
	return outcome(got.result, got.err)
}

func batch(given fields) (facts, error) {
	var messages []*primitive.Message
	for _, body := range strings.Split(given["body"], "|") {
		given["body"] = body
		messages = append(messages, message(given))
	}
	return outcome(sender.SendSync(context.Background(), messages...))
}

func request(given fields) (facts, error) {
	reply, err := sender.Request(context.Background(), 20*time.Second, message(given))
	if err != nil {
		return nil, err
	}
	return facts{"body": string(reply.Body)}, nil
}

// decisions says of each message what its transaction ends with: at once, or when the broker asks.
type decisions struct{}

var states = map[string]primitive.LocalTransactionState{
	"commit":   primitive.CommitMessageState,
	"rollback": primitive.RollbackMessageState,
	"unknown":  primitive.UnknowState,
}

func (decisions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return states[message.GetProperty("now")]
}

func (decisions) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	say(facts{"consumer": "checks", "body": string(message.Body), "topic": message.Topic})
	return states[message.GetProperty("later")]
}

var transactional = map[string]rocketmq.TransactionProducer{}

func transact(given fields) (facts, error) {
	group := given["group"]
	if transactional[group] == nil {
		made, err := rocketmq.NewTransactionProducer(decisions{}, producerOptions(given)...)
		if err != nil {
			return nil, err
		}
		if err := made.Start(); err != nil {
			return nil, err
		}
		transactional[group] = made
	}
	half := message(given)
	half.WithProperty("now", given["now"])
	half.WithProperty("later", given["later"])
	result, err := transactional[group].SendMessageInTransaction(context.Background(), half)
	if err != nil {
		return nil, err
	}
	return outcome(result.SendResult, nil)
}

// pull reads a topic with a pull consumer of the group until it has `count` messages.
func pull(given fields) (facts, error) {
	wanted, _ := strconv.Atoi(given["count"])
	puller, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver(namesrv)),
		consumer.WithGroupName(given["group"]),
		consumer.WithInstance(name("puller")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	if err := puller.Subscribe(given["topic"], selector(given)); err != nil {
		return nil, err
	}
	if err := puller.Start(); err != nil {
		return nil, err
	}
	defer puller.Shutdown()
	bodies := []string{}
	for deadline := time.Now().Add(30 * time.Second); len(bodies) < wanted && time.Now().Before(deadline); {
		request, err := puller.Poll(context.Background(), time.Second)
		if err != nil {
			continue
		}
		for _, each := range request.GetMsgList() {
			bodies = append(bodies, string(each.Body))
		}
		puller.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	return facts{"bodies": bodies}, nil
}

// consume starts a push consumer that refuses the first `fail` deliveries of each message, and replies to requests.
func consume(given fields) (facts, error) {
	options := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver(namesrv)),
		consumer.WithGroupName(given["group"]),
		consumer.WithInstance(name(given["consumer"])),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(given["mode"] == "orderly"),
		consumer.WithSuspendCurrentQueueTimeMillis(100 * time.Millisecond),
	}
	if given["mode"] == "broadcasting" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if retries, err := strconv.Atoi(given["retries"]); err == nil {
		options = append(options, consumer.WithMaxReconsumeTimes(int32(retries)))
	}
	if given["namespace"] != "" {
		options = append(options, consumer.WithNamespace(given["namespace"]))
	}
	if given["access"] != "" {
		options = append(options, consumer.WithCredentials(credentials(given)))
	}
	if given["trace"] != "" {
		options = append(options, consumer.WithTrace(traced(given)))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	if err := made.Subscribe(given["topic"], selector(given), receiver(given)); err != nil {
		return nil, err
	}
	consumers[given["consumer"]] = made
	return facts{"started": true}, made.Start()
}

func receiver(given fields) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	fail, _ := strconv.Atoi(given["fail"])
	refusal := consumer.ConsumeRetryLater
	if given["mode"] == "orderly" {
		refusal = consumer.SuspendCurrentQueueAMoment
	}
	var counting sync.Mutex
	deliveries := map[string]int{}
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		message := messages[0]
		say(describe(given["consumer"], message))
		if message.GetProperty(primitive.PropertyMessageReplyToClient) != "" {
			reply(message)
		}
		counting.Lock()
		defer counting.Unlock()
		deliveries[string(message.Body)]++
		if deliveries[string(message.Body)] <= fail {
			return refusal, nil
		}
		return consumer.ConsumeSuccess, nil
	}
}

func reply(message *primitive.MessageExt) {
	time.Sleep(1500 * time.Millisecond) // the asker's first heartbeat comes a second after its start
	answer, err := consumer.CreateReplyMessage(message, []byte("re: "+string(message.Body)))
	if err == nil {
		answer.Body = []byte("re: " + string(message.Body)) // which CreateReplyMessage takes and forgets
		_, err = sender.SendSync(context.Background(), answer)
	}
	if err != nil {
		fmt.Println("no reply:", err)
	}
}

func selector(given fields) consumer.MessageSelector {
	kind := consumer.TAG
	if given["type"] == "SQL92" {
		kind = consumer.SQL92
	}
	return consumer.MessageSelector{Type: kind, Expression: given["expression"]}
}

func message(given fields) *primitive.Message {
	times, err := strconv.Atoi(given["times"])
	if err != nil {
		times = 1
	}
	made := primitive.NewMessage(given["topic"], []byte(strings.Repeat(given["body"], times)))
	if given["tags"] != "" {
		made.WithTag(given["tags"])
	}
	if given["keys"] != "" {
		made.WithKeys(strings.Split(given["keys"], " "))
	}
	for word, value := range given {
		if property, is := strings.CutPrefix(word, "property."); is {
			made.WithProperty(property, value)
		}
	}
	if given["colour"] != "" {
		made.WithProperty("colour", given["colour"])
	}
	if level, err := strconv.Atoi(given["delay"]); err == nil {
		made.WithDelayTimeLevel(level)
	}
	if shard, err := strconv.Atoi(given["shard"]); err == nil {
		made.Queue = &primitive.MessageQueue{QueueId: shard}
	}
	return made
}

// chosen sends a message that names a queue to that queue, counted round, and others as the rest would.
type chosen struct{ rest producer.QueueSelector }

func (c chosen) Select(message *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if message.Queue == nil {
		return c.rest.Select(message, queues, last)
	}
	return queues[message.Queue.QueueId%len(queues)]
}

func describe(consumer string, message *primitive.MessageExt) facts {
	return facts{
		"consumer": consumer,
		"topic":    message.Topic,
		"body":     string(message.Body),
		"tags":     message.GetTags(),
		"keys":     message.GetKeys(),
		"colour":   message.GetProperty("colour"),
		"queue":    message.Queue.QueueId,
		"offset":   message.QueueOffset,
		"retries":  message.ReconsumeTimes,
		"born":     message.BornTimestamp,
		"stored":   message.StoreTimestamp,
		"size":     message.StoreSize,
		"id":       message.MsgId,
	}
}

var statuses = map[primitive.SendStatus]string{
	primitive.SendOK:                "OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

func outcome(result *primitive.SendResult, err error) (facts, error) {
	if err != nil {
		return nil, err
	}
	return facts{
		"status":    statuses[result.Status],
		"id":        result.MsgID,
		"offset_id": result.OffsetMsgID,
		"queue":     result.MessageQueue.QueueId,
		"offset":    result.QueueOffset,
	}, nil
}

func credentials(given fields) primitive.Credentials {
	return primitive.Credentials{AccessKey: given["access"], SecretKey: given["secret"]}
}

func traced(given fields) *primitive.TraceConfig {
	return &primitive.TraceConfig{
		GroupName: given["group"],
		Access:    primitive.Local,
		Resolver:  primitive.NewPassthroughResolver(namesrv),
	}
}

// name makes each client an instance of its own, as if it were alone in its process.
func name(of string) string {
	names++
	return fmt.Sprintf("%s-%d", of, names)
}

func say(event facts) {
	line, _ := json.Marshal(event)
	speaking.Lock()
	defer speaking.Unlock()
	os.Stdout.Write(append(line, '\n'))
}
