//! A store with the faults of a real one, for tests: latency, errors of the server, uploads that break off, answers that are lost, and
//! lists that are old.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::TryStreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Which faults happen, each in so many of a hundred operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    pub latency_ms_max: u64,
    /// An upload is refused with 503.
    pub put_refused: u64,
    /// An upload breaks off: half of it lies under its name.
    pub put_torn: u64,
    /// An upload succeeds, and its answer is lost.
    pub put_unanswered: u64,
    pub get_refused: u64,
    pub delete_refused: u64,
    pub list_refused: u64,
    /// A list is one that was given before.
    pub list_old: u64,
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub puts: u64,
    pub refused: u64,
    pub torn: u64,
    pub unanswered: u64,
    pub old_lists: u64,
}

/// Faults of all stores that share them. They may change while stores are in use.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    rates: Rates,
    counts: Counts,
    drawn: u64,
    last_list: Vec<ObjectMeta>,
}

/// A store in front of another one.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn ObjectStore>,
    faults: Faults,
}

#[derive(Debug, thiserror::Error)]
#[error("503 Service Unavailable: {0}")]
struct Refused(&'static str);

fn refused(what: &'static str) -> Error {
    Error::Generic { store: "faulty", source: Box::new(Refused(what)) }
}

impl Faults {
    pub fn new(seed: u64, rates: Rates) -> Faults {
        Faults(Arc::new(Mutex::new(State { rates, drawn: seed, ..State::default() })))
    }

    pub fn set(&self, rates: Rates) {
        self.state().rates = rates;
    }

    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    pub fn before(&self, inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(Faulty { inner, faults: self.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let ms = {
            let mut state = self.state();
            let most = state.rates.latency_ms_max;
            if most == 0 { 0 } else { state.draw() % most }
        };
        std::thread::sleep(Duration::from_millis(ms));
    }

    /// Whether a fault happens, at a rate.
    fn happens(&self, rate: impl Fn(&Rates) -> u64, count: impl Fn(&mut Counts) -> &mut u64) -> bool {
        let mut state = self.state();
        let happens = state.draw() % 100 < rate(&state.rates);
        if happens {
            *count(&mut state.counts) += 1;
        }
        happens
    }
}

impl State {
    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let drawn = (self.drawn ^ self.drawn >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn ^ drawn >> 31
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let faults = &self.faults;
        faults.state().counts.puts += 1;
        faults.wait();
        if faults.happens(|rates| rates.put_refused, |counts| &mut counts.refused) {
            return Err(refused("slow down"));
        }
        if faults.happens(|rates| rates.put_torn, |counts| &mut counts.torn) {
            let bytes = Bytes::from(payload);
            let half = bytes.slice(..bytes.len() / 2);
            self.inner.put_opts(location, half.into(), opts).await?;
            return Err(refused("the upload broke off"));
        }
        let result = self.inner.put_opts(location, payload, opts).await?;
        match faults.happens(|rates| rates.put_unanswered, |counts| &mut counts.unanswered) {
            true => Err(refused("the answer was lost")),
            false => Ok(result),
        }
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.faults.wait();
        match self.faults.happens(|rates| rates.get_refused, |counts| &mut counts.refused) {
            true => Err(refused("slow down")),
            false => self.inner.get_opts(location, options).await,
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.faults.wait();
        match self.faults.happens(|rates| rates.delete_refused, |counts| &mut counts.refused) {
            true => stream::once(async { Err(refused("slow down")) }).boxed(),
            false => self.inner.delete_stream(locations),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.faults.wait();
        if self.faults.happens(|rates| rates.list_refused, |counts| &mut counts.refused) {
            return stream::once(async { Err(refused("slow down")) }).boxed();
        }
        let faults = self.faults.clone();
        if faults.happens(|rates| rates.list_old, |counts| &mut counts.old_lists) {
            let old = faults.state().last_list.clone();
            return stream::iter(old.into_iter().map(Ok)).boxed();
        }
        let listed = self.inner.list(prefix);
        let whole = async move {
            let listed: Vec<ObjectMeta> = listed.try_collect().await?;
            faults.state().last_list.clone_from(&listed);
            Ok::<_, Error>(stream::iter(listed.into_iter().map(Ok)))
        };
        stream::once(whole).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
