// A program with Apache's own Rust client of RocketMQ 5: what puppet.py does, without what this client lacks.
//
//     puppet ENDPOINTS TASK      prints JSON

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
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
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![TOPIC]);
    option.set_consumer_group("simple");
    let mut consumer = SimpleConsumer::new(option, client())?;
    consumer.start().await?;
    let tag = FilterExpression::new(FilterType::Tag, "a");
    for _ in 0..2 {
        // A new group begins with what comes to a broker after its first receive there.
        consumer.receive_with(TOPIC, &tag, 1, Duration::from_secs(15)).await?;
    }
    let mut producer = Producer::new(producing(), client())?;
    producer.start().await?;
    for number in 0..4 {
        let message = outgoing(&format!("m{number}"))
            .set_tag(if number < 3 { "a" } else { "b" })
            .set_keys(vec![format!("k{number}")])
            .set_properties(HashMap::from([("own", "x")]));
        producer.send(message.build()?).await?;
    }
    producer.send(outgoing("later").set_tag("a").build()?).await?;
    let mut found = Vec::new();
    let start = Instant::now();
    while found.len() < 4 && start.elapsed() < LIMIT {
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

#[tokio::main]
async fn main() {
    let task = std::env::args().nth(2).unwrap();
    let found = match task.as_str() {
        "sends_and_receives" => sends_and_receives().await,
        "ends_transactions" => ends_transactions().await,
        _ => panic!("no task {task}"),
    };
    println!("{}", found.unwrap());
}
