//! A store with the faults of a real one, for tests and measurements: latency, errors of the server, uploads that break off, answers
//! that are lost, and lists that are old. Latency needs a runtime with a timer.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
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
    pub latency: Latency,
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

/// How long each operation waits before it is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Latency {
    #[default]
    None,
    /// As often each time below this.
    Below { ms: u64 },
    /// Log-normal: half of all times are below the median, and 99 of 100 below the other.
    LogNormal { median_ms: f64, p99_ms: f64 },
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub puts: u64,
    pub gets: u64,
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

    /// Lets the latency of an operation pass.
    async fn wait(&self) {
        let latency = {
            let mut state = self.state();
            let latency = state.rates.latency;
            latency.drawn(|| state.draw())
        };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
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

impl Latency {
    fn drawn(self, mut draw: impl FnMut() -> u64) -> Duration {
        match self {
            Latency::None | Latency::Below { ms: 0 } => Duration::ZERO,
            Latency::Below { ms } => Duration::from_millis(draw() % ms),
            Latency::LogNormal { median_ms, p99_ms } => {
                /// 99 of 100 values of the normal distribution are below this.
                const NORMAL_P99: f64 = 2.326_347_874;
                let mut uniform = || ((draw() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
                // Box and Muller.
                let radius = (-2.0 * uniform().ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * uniform()).cos();
                let spread = (p99_ms / median_ms).ln() / NORMAL_P99;
                Duration::from_secs_f64(median_ms * (spread * normal).exp() / 1e3)
            }
        }
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

impl Faulty {
    fn after_latency<T: Send + 'static>(&self, answers: BoxStream<'static, T>) -> BoxStream<'static, T> {
        let faults = self.faults.clone();
        async move { faults.wait().await }.map(|()| answers).flatten_stream().boxed()
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
        faults.wait().await;
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
        self.faults.state().counts.gets += 1;
        self.faults.wait().await;
        match self.faults.happens(|rates| rates.get_refused, |counts| &mut counts.refused) {
            true => Err(refused("slow down")),
            false => self.inner.get_opts(location, options).await,
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let deleted = match self.faults.happens(|rates| rates.delete_refused, |counts| &mut counts.refused) {
            true => stream::once(async { Err(refused("slow down")) }).boxed(),
            false => self.inner.delete_stream(locations),
        };
        self.after_latency(deleted)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if self.faults.happens(|rates| rates.list_refused, |counts| &mut counts.refused) {
            return self.after_latency(stream::once(async { Err(refused("slow down")) }).boxed());
        }
        let faults = self.faults.clone();
        if faults.happens(|rates| rates.list_old, |counts| &mut counts.old_lists) {
            let old = faults.state().last_list.clone();
            return self.after_latency(stream::iter(old.into_iter().map(Ok)).boxed());
        }
        let listed = self.inner.list(prefix);
        let whole = async move {
            let listed: Vec<ObjectMeta> = listed.try_collect().await?;
            faults.state().last_list.clone_from(&listed);
            Ok::<_, Error>(stream::iter(listed.into_iter().map(Ok)))
        };
        self.after_latency(stream::once(whole).try_flatten().boxed())
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_has_the_median_and_the_p99_that_it_names() {
        let faults = Faults::new(1, Rates::default());
        let latency = Latency::LogNormal { median_ms: 20.0, p99_ms: 50.0 };
        let mut drawn: Vec<Duration> = (0..20_000).map(|_| latency.drawn(|| faults.state().draw())).collect();
        drawn.sort();
        let [median_ms, p99_ms] = [10_000, 19_800].map(|at| drawn[at].as_secs_f64() * 1e3);
        assert!((19.5..20.5).contains(&median_ms) && (48.0..52.0).contains(&p99_ms), "{median_ms} {p99_ms}");
    }
}
