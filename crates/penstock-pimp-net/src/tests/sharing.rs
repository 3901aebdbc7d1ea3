//! A consumer that several threads share.

use super::*;

fn shared(client: &Arc<JobClient>, position: Option<&str>) -> Result<Arc<SharedConsumer>> {
    SharedConsumer::new(Arc::clone(client), Some("reader".into()), config(), position).map(Arc::new)
}

#[test]
fn where_a_consumer_is_can_be_asked_while_it_waits() {
    let buffer = buffer(None);
    let client = job(&buffer);
    let consumer = shared(&client, None).expect("valid");
    let start_of_job = consumer.position();
    assert_eq!(consumer.next_index(), 0);
    let sender = start(&client, SenderConfig::default());
    wait(sender.send(text("abc"))).expect("sent");
    wait(sender.flush()).expect("written");
    // The metadata do not end a wait for data, and do not swallow it.
    assert_eq!(wait(consumer.data()).expect("read"), Some(b"abc".to_vec()));
    assert_eq!(wait(consumer.metadata()).expect("known").content_type, "text/plain; charset=utf-8");
    let position = consumer.position();
    let waiting = Arc::clone(&consumer);
    let waiting = penstock_io::runtime::spawn(async move { waiting.data().await }).expect("a runtime");
    assert_eq!((consumer.next_index(), consumer.position()), (2, position.clone()));
    assert_ne!(position, start_of_job);
    wait(sender.send(text("def"))).expect("sent");
    wait(sender.finish()).expect("finished");
    assert_eq!(block_on(waiting).expect("a runtime").expect("ended").expect("read"), Some(b"def".to_vec()));
    assert_eq!(wait(consumer.data()).expect("read"), None);
    // Another consumer continues from that position.
    let other = shared(&client, Some(&position)).expect("valid");
    assert_eq!(wait(other.data()).expect("read"), Some(b"def".to_vec()));
    assert!(matches!(shared(&client, Some("no position")), Err(Error::Protocol(_))));
}
