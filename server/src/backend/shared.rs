//! One question for many callers at the same time.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

/// Answers to a question that is asked once at a time. A caller that comes while it is asked waits for the next time. All waiting callers
/// take that answer, since it was asked after they came.
#[derive(Debug)]
pub(super) struct SharedQuestion<A> {
    begun: AtomicU64,
    /// The number of the last one that was answered, and its answer.
    last: Mutex<Option<(u64, A)>>,
}

impl<A: Clone> SharedQuestion<A> {
    pub fn new() -> SharedQuestion<A> {
        SharedQuestion { begun: AtomicU64::new(0), last: Mutex::new(None) }
    }

    /// The answer to a question that began after this call.
    pub async fn ask<F: Future<Output = A>>(&self, question: impl FnOnce() -> F) -> A {
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        match &*last {
            Some((number, answer)) if *number > before => answer.clone(),
            _ => {
                let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
                let answer = question().await;
                *last = Some((number, answer.clone()));
                answer
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::time::Duration;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_at_once_share_two_questions() {
        let shared = SharedQuestion::new();
        let asked = &AtomicU64::new(0);
        let question = || async move {
            let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
            sleep(Duration::from_secs(1)).await;
            number
        };
        let first = shared.ask(question);
        let rest = async {
            sleep(Duration::from_millis(500)).await;
            join_all((0..100).map(|_| shared.ask(question))).await
        };
        let (first, rest) = tokio::join!(first, rest);
        assert_eq!((first, rest), (1, vec![2; 100]), "an answer is never older than who asks");
        assert_eq!(shared.ask(question).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_given_up_is_asked_again() {
        let shared = SharedQuestion::new();
        let never = shared.ask(std::future::pending::<u64>);
        assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
        assert_eq!(shared.ask(|| std::future::ready(7)).await, 7);
    }
}
