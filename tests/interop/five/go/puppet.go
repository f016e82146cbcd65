// A program with Apache's own Go client of RocketMQ 5: what puppet.py does.
//
//	puppet ENDPOINTS TASK      prints JSON
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	client "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const limit = 60 * time.Second

func config(group string) *client.Config {
	return &client.Config{
		Endpoint: os.Args[1], ConsumerGroup: group, Credentials: &credentials.SessionCredentials{},
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func outgoing(body string) *client.Message {
	return &client.Message{Topic: "orders", Body: []byte(body)}
}

func producing(options ...client.ProducerOption) client.Producer {
	producer, err := client.NewProducer(config(""), append([]client.ProducerOption{client.WithTopics("orders")}, options...)...)
	must(err)
	must(producer.Start())
	return producer
}

func send(producer client.Producer, message *client.Message) *client.SendReceipt {
	receipts, err := producer.Send(context.TODO(), message)
	must(err)
	return receipts[0]
}

func sendsAndReceives() any {
	producer := producing()
	for number := 0; number < 20; number++ {
		message := outgoing(fmt.Sprintf("m%d", number))
		message.SetTag(map[bool]string{true: "a", false: "b"}[number < 19])
		message.SetKeys(fmt.Sprintf("k%d", number))
		message.AddProperty("own", "x")
		send(producer, message)
	}
	later := outgoing("later")
	later.SetTag("a")
	sent := make(chan error)
	producer.SendAsync(context.TODO(), later, func(_ context.Context, _ []*client.SendReceipt, err error) { sent <- err })
	must(<-sent)
	consumer, err := client.NewSimpleConsumer(config("simple"),
		client.WithSimpleAwaitDuration(3*time.Second),
		client.WithSimpleSubscriptionExpressions(
			map[string]*client.FilterExpression{"orders": client.NewFilterExpression("a")}))
	must(err)
	must(consumer.Start())
	found := [][]any{}
	for end := time.Now().Add(limit); len(found) < 20 && time.Now().Before(end); {
		messages, _ := consumer.Receive(context.TODO(), 32, 15*time.Second) // an empty answer is an error of this client
		for _, each := range messages {
			keys := each.GetKeys()
			if keys == nil {
				keys = []string{}
			}
			properties := map[string]string{}
			for name, value := range each.GetProperties() {
				properties[name] = value
			}
			found = append(found, []any{string(each.GetBody()), *each.GetTag(), keys, properties})
			must(consumer.Ack(context.TODO(), each))
		}
	}
	sort.Slice(found, func(one, other int) bool { return found[one][0].(string) < found[other][0].(string) })
	return found
}

func pushes() any {
	producer := producing()
	for number := 0; number < 20; number++ {
		message := outgoing(fmt.Sprintf("f%d", number))
		message.SetMessageGroup(fmt.Sprintf("g%d", number%8))
		send(producer, message)
	}
	bodies := make(chan string, 100)
	consumer, err := client.NewPushConsumer(config("push"),
		client.WithPushAwaitDuration(3*time.Second),
		client.WithPushSubscriptionExpressions(map[string]*client.FilterExpression{"orders": client.SUB_ALL}),
		client.WithPushMessageListener(&client.FuncMessageListener{
			Consume: func(message *client.MessageView) client.ConsumerResult {
				bodies <- string(message.GetBody())
				return client.SUCCESS
			},
		}))
	must(err)
	must(consumer.Start())
	found := []string{}
	for end := time.After(limit); len(found) < 20; {
		select {
		case body := <-bodies:
			found = append(found, body)
		case <-end:
			return found
		}
	}
	sort.Strings(found)
	return found
}

func endsTransactions() any {
	asked := make(chan string, 10)
	producer := producing(client.WithTransactionChecker(&client.TransactionChecker{
		Check: func(message *client.MessageView) client.TransactionResolution {
			asked <- message.GetMessageId()
			return client.COMMIT
		},
	}))
	now := producer.BeginTransaction()
	_, err := producer.SendWithTransaction(context.TODO(), outgoing("now"), now)
	must(err)
	must(now.Commit())
	receipts, err := producer.SendWithTransaction(context.TODO(), outgoing("asked"), producer.BeginTransaction())
	must(err)
	select {
	case question := <-asked:
		return []any{20000, question == receipts[0].MessageID}
	case <-time.After(limit):
		return nil
	}
}

func recalls() any {
	producer := producing()
	late := outgoing("never")
	late.SetDelayTimestamp(time.Now().Add(10 * time.Minute))
	receipt := send(producer, late)
	id, err := producer.Recall(context.TODO(), "orders", receipt.RecallHandle)
	must(err)
	return id == receipt.MessageID
}

func next(consumer client.SimpleConsumer, invisible time.Duration) *client.MessageView {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		messages, _ := consumer.Receive(context.TODO(), 1, invisible)
		for _, each := range messages {
			return each
		}
	}
	must(fmt.Errorf("no message came"))
	return nil
}

func settles() any {
	wanted := client.NewFilterExpressionWithType("amount > 3", client.SQL92)
	consumer, err := client.NewSimpleConsumer(config("settle"),
		client.WithSimpleAwaitDuration(3*time.Second),
		client.WithSimpleSubscriptionExpressions(map[string]*client.FilterExpression{"orders": wanted}))
	must(err)
	must(consumer.Start())
	producer := producing(client.WithTopics("orders", "fifo"))
	for body, amount := range map[string]string{"small": "1", "large": "5"} {
		message := outgoing(body)
		message.AddProperty("amount", amount)
		send(producer, message)
	}
	first := next(consumer, 300*time.Second)
	must(consumer.ChangeInvisibleDuration(first, 10*time.Second))
	again := next(consumer, 15*time.Second)
	must(consumer.Ack(context.TODO(), again))
	found := []any{}
	for _, each := range []*client.MessageView{first, again} {
		found = append(found, []any{string(each.GetBody()), each.GetDeliveryAttempt()})
	}
	inOrder := &client.Message{Topic: "fifo", Body: []byte("in order")}
	inOrder.SetMessageGroup("g")
	send(producer, inOrder)
	_, err = producer.Send(context.TODO(), &client.Message{Topic: "fifo", Body: []byte("normal")})
	return append(found, err != nil)
}

func main() {
	os.Setenv("mq.consoleAppender.enabled", "false")
	client.ResetLogger()
	client.EnableSsl = os.Getenv("TLS") != ""
	tasks := map[string]func() any{
		"sends_and_receives": sendsAndReceives, "pushes": pushes, "ends_transactions": endsTransactions, "settles": settles,
		"recalls": recalls,
	}
	line, err := json.Marshal(tasks[os.Args[2]]())
	must(err)
	fmt.Println(string(line))
	os.Exit(0)
}
