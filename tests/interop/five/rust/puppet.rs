// A program with Apache's own Rust client of RocketMQ 5: what puppet.py does, without what this client lacks.
//
//     puppet ENDPOINTS TASK      prints JSON

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};

const LIMIT: Duration = Duration::from_secs(60);
const TOPIC: &str = "orders";

fn client() -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(std::env::args().nth(1).unwrap());
    option.set_long_polling_timeout(Duration::from_secs(3));
    option
}

fn producing() -> ProducerOption {
    let mut option = ProducerOption::default();
    option.set_topics(vec![TOPIC]);
    option
}

fn outgoing(body: &str) -> MessageBuilder {
    MessageBuilder::builder().set_topic(TOPIC).set_body(body.as_bytes().to_vec())
}

async fn sends_and_receives() -> Result<Value, ClientError> {
    let mut producer = Producer::new(producing(), client())?;
    producer.start().await?;
    for number in 0..20 {
        let message = outgoing(&format!("m{number}"))
            .set_tag(if number < 19 { "a" } else { "b" })
            .set_keys(vec![format!("k{number}")])
            .set_properties(HashMap::from([("own", "x")]));
        producer.send(message.build()?).await?;
    }
    producer.send(outgoing("later").set_tag("a").build()?).await?;
    let consumer = consuming("simple").await?;
    let tag = FilterExpression::new(FilterType::Tag, "a");
    let mut found = Vec::new();
    let start = Instant::now();
    while found.len() < 20 && start.elapsed() < LIMIT {
        for message in consumer.receive(TOPIC, &tag).await? {
            let body = String::from_utf8_lossy(message.body()).into_owned();
            found.push((body.clone(), json!([body, message.tag(), message.keys(), message.properties()])));
            consumer.ack(&message).await?;
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    producer.shutdown().await?;
    consumer.shutdown().await?;
    Ok(found.into_iter().map(|(_, message)| message).collect())
}

async fn ends_transactions() -> Result<Value, ClientError> {
    let (asked, questions) = mpsc::channel();
    let asked = std::sync::Mutex::new(asked);
    let mut producer = Producer::new_transaction_producer(
        producing(),
        client(),
        Box::new(move |_, message| {
            asked.lock().unwrap().send(message.message_id().to_string()).unwrap();
            TransactionResolution::COMMIT
        }),
    )?;
    producer.start().await?;
    let now = producer.send_transaction_message(outgoing("now").enable_transaction().build()?).await?;
    now.commit().await?;
    let open = producer.send_transaction_message(outgoing("asked").enable_transaction().build()?).await?;
    let question = tokio::task::spawn_blocking(move || questions.recv_timeout(LIMIT)).await.unwrap();
    Ok(json!([20000, question.as_deref() == Ok(open.message_id())]))
}

async fn consuming(group: &str) -> Result<SimpleConsumer, ClientError> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![TOPIC]);
    option.set_consumer_group(group);
    let mut consumer = SimpleConsumer::new(option, client())?;
    consumer.start().await?;
    Ok(consumer)
}

async fn next(
    consumer: &SimpleConsumer,
    wanted: &FilterExpression,
    count: i32,
    invisible_s: u64,
) -> Result<Vec<MessageView>, ClientError> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        let found = consumer.receive_with(TOPIC, wanted, count, Duration::from_secs(invisible_s)).await?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    panic!("no message came");
}

async fn settles() -> Result<Value, ClientError> {
    let consumer = consuming("settle").await?;
    let mut option = producing();
    option.set_topics(vec![TOPIC, "fifo"]);
    let mut producer = Producer::new(option, client())?;
    producer.start().await?;
    for (body, amount) in [("small", "1"), ("large", "5")] {
        producer.send(outgoing(body).set_properties(HashMap::from([("amount", amount)])).build()?).await?;
    }
    let wanted = FilterExpression::new(FilterType::Sql, "amount > 3");
    let first = next(&consumer, &wanted, 1, 10).await?.remove(0); // this client cannot change the time
    let again = next(&consumer, &wanted, 1, 15).await?.remove(0);
    consumer.ack(&again).await?;
    let mut found: Vec<Value> = [&first, &again]
        .iter()
        .map(|each| json!([String::from_utf8_lossy(each.body()), each.delivery_attempt()]))
        .collect();
    producer.send(outgoing("in order").set_topic("fifo").set_message_group("g").build()?).await?;
    found.push(json!(producer.send(outgoing("normal").set_topic("fifo").build()?).await.is_err()));
    Ok(Value::from(found))
}

async fn sends_batches() -> Result<Value, ClientError> {
    let consumer = consuming("settle").await?;
    let mut producer = Producer::new(producing(), client())?;
    producer.start().await?;
    let messages: Result<Vec<_>, _> = (0..3).map(|number| outgoing(&format!("b{number}")).build()).collect();
    let receipts = producer.batch_send(messages?).await?;
    let all = FilterExpression::new(FilterType::Tag, "*");
    let mut found: Vec<String> = Vec::new();
    while found.len() < receipts.len() {
        for message in next(&consumer, &all, 3, 15).await? {
            found.push(String::from_utf8_lossy(message.body()).into_owned());
            consumer.ack(&message).await?;
        }
    }
    found.sort();
    Ok(json!(found))
}

#[tokio::main]
async fn main() {
    let task = std::env::args().nth(2).unwrap();
    let found = match task.as_str() {
        "sends_and_receives" => sends_and_receives().await,
        "ends_transactions" => ends_transactions().await,
        "settles" => settles().await,
        "sends_batches" => sends_batches().await,
        _ => panic!("no task {task}"),
    };
    println!("{}", found.unwrap());
}
