//! Two receivers on one spool in an object store.

use std::sync::Mutex;

use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result,
};

use super::{
    ALL, Arc, Delivery, Destination as _, Duration, InMemory, Keep, ObjectPrefix, Position, Spool, SpoolOptions, all,
    block_on, delivery, fmt, numbers_of, plan,
};
use penstock_io::Busy;

use crate::Error;

fn in_store(memory: &Arc<InMemory>) -> SpoolOptions {
    let place = ObjectPrefix::of(memory.clone(), "logs/spool");
    SpoolOptions { linger: Duration::from_millis(1), ..SpoolOptions::new(Keep::Objects(place)) }
}

fn take_of(spool: &Spool, sender: &str, events: std::ops::Range<u32>) -> crate::Result<()> {
    block_on(spool.take(Delivery { sender: sender.into(), ..delivery(1, events) })).unwrap()
}

#[test]
fn who_opens_a_spool_in_a_store_shuts_out_who_wrote_it_before() {
    let memory = Arc::new(InMemory::new());
    let first = Spool::open(in_store(&memory)).unwrap();
    take_of(&first, "a", 0..2).unwrap();
    let second = Spool::open(in_store(&memory)).unwrap();
    let store = second.store().unwrap();
    for round in 1..5 {
        take_of(&second, "b", round * 10..round * 10 + 2).unwrap();
    }
    // Segments that every reader has read are removed, and with them the numbers that the first
    // writer would use next.
    let end = plan(&*store, Position::default(), None, ALL).unwrap().end;
    second.commit("query", end).unwrap();
    let before = all(&store);
    for _ in 0..3 {
        let error = take_of(&first, "a", 90..92).unwrap_err();
        let Error::Local(penstock_io::Error::Busy(Busy::TakenOver { place, .. })) = &error else { panic!("{error}") };
        assert!(place.contains("memory://logs/spool"), "{error}");
    }
    assert_eq!(first.counters().unwrap().refused, 3);
    // The first writer accepts no commits either, and removes nothing.
    let committed = first.commit("other", Position { segment: 1, row: 2 });
    assert!(matches!(committed, Err(Error::Local(penstock_io::Error::Busy(_)))), "{committed:?}");
    take_of(&second, "b", 60..62).unwrap();
    let behind: Vec<u32> = numbers_of(&store, &plan(&*store, end, None, ALL).unwrap().pieces);
    assert_eq!(behind, [60, 61]);
    assert!(before.iter().all(|number| all(&store).contains(number)));
    drop((first, second));
    let third = Spool::open(in_store(&memory)).unwrap();
    take_of(&third, "a", 90..92).unwrap();
    assert_eq!(numbers_of(&third.store().unwrap(), &plan(&*store, end, None, ALL).unwrap().pieces), [60, 61, 90, 91]);
}

#[test]
fn a_segment_that_is_put_while_another_receiver_comes_is_refused_and_that_one_knows_it() {
    let memory = Arc::new(InMemory::new());
    let hooked = Arc::new(Hooked { inner: Arc::clone(&memory), second: Mutex::default() });
    let place = ObjectPrefix::of(Arc::clone(&hooked) as Arc<dyn object_store::ObjectStore>, "logs/spool");
    let first = Spool::open(SpoolOptions { keep: Keep::Objects(place), ..in_store(&memory) }).unwrap();
    take_of(&first, "192.0.2.1", 0..2).unwrap();
    assert!(hooked.second.lock().unwrap().is_none());
    let taken = block_on(first.take(Delivery { first: 2, ..delivery(1, 2..4) })).unwrap();
    assert!(matches!(taken, Err(Error::Local(penstock_io::Error::Busy(_)))), "{taken:?}");
    let second = hooked.second.lock().unwrap().take().unwrap();
    block_on(second.take(delivery(2, 2..4))).unwrap().unwrap();
    assert_eq!(all(&second.store().unwrap()), [0, 1, 2, 3]);
    assert_eq!(second.counters().unwrap().duplicates, 2);
}

/// A store that lets another receiver open the spool when its second segment is put, before the put
/// returns.
#[derive(Debug)]
struct Hooked {
    inner: Arc<InMemory>,
    second: Mutex<Option<Arc<Spool>>>,
}

impl fmt::Display for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooked")
    }
}

#[async_trait::async_trait]
impl object_store::ObjectStore for Hooked {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let put = self.inner.put_opts(path, payload, options).await;
        if path.as_ref().ends_with("2.segment") {
            let memory = Arc::clone(&self.inner);
            let opened = std::thread::spawn(move || Spool::open(in_store(&memory)).unwrap()).join().unwrap();
            *self.second.lock().unwrap() = Some(opened);
        }
        put
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
