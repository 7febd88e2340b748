//! Turns a wish to see a turn's files into what they held, while its command runs.
//! It refuses to know what is wished for, and to let a look that fails be more than a look that was not taken.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Fetched;

/// How long a command may take to write what it has just told.
const SETTLE: Duration = Duration::from_millis(250);
/// The shortest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The pause after a look is so many times as long as the look was.
const PAUSE_SHARE: u32 = 20;

/// Looks at a turn's files. They are taken one at a time, with a pause between them, however many are wished for.
#[derive(Debug, Clone)]
pub struct Looks {
    /// Wishes for one.
    pub wanted: Arc<Notify>,
    /// Gets what was seen, all files each time.
    pub seen: mpsc::UnboundedSender<Vec<Fetched>>,
}

impl Looks {
    /// Waits for a command and takes looks meanwhile. None is being taken any more when this returns, so that nothing of
    /// it is alive beside what the command left.
    pub(super) async fn during<T, F: Future<Output = Result<Vec<Fetched>, String>>>(
        &self,
        command: impl Future<Output = T>,
        look: impl Fn() -> F,
    ) -> T {
        let over = CancellationToken::new();
        let looking = async {
            while over.run_until_cancelled(self.next()).await.is_some() {
                let began = Instant::now();
                if let Ok(files) = look().await {
                    // Whoever wished for it may be gone.
                    let _ = self.seen.send(files);
                }
                let pause = began.elapsed().saturating_mul(PAUSE_SHARE).max(PAUSE_MIN);
                if over.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                    return;
                }
            }
        };
        let command = async {
            let result = command.await;
            over.cancel();
            result
        };
        tokio::join!(command, looking).0
    }

    /// The next wish, a little later.
    async fn next(&self) {
        self.wanted.notified().await;
        tokio::time::sleep(SETTLE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks() -> (Looks, mpsc::UnboundedReceiver<Vec<Fetched>>) {
        let (seen, told) = mpsc::unbounded_channel();
        (Looks { wanted: Arc::new(Notify::new()), seen }, told)
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_are_wished_for_one_is_taken_at_a_time_and_seldom() {
        let (looks, mut told) = looks();
        let wishes = async {
            for _ in 0..1000 {
                looks.wanted.notify_one();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let look = async || {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(Vec::new())
        };
        looks.during(wishes, look).await;
        drop(looks);
        let mut count = 0;
        while told.recv().await.is_some() {
            count += 1;
        }
        // Ten seconds, and each look costs 0.25 s before it, 0.1 s and 2 s after it.
        assert_eq!(count, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_is_being_taken_is_waited_for_and_one_that_fails_is_none() {
        let (looks, mut told) = looks();
        looks.wanted.notify_one();
        let taken = std::cell::Cell::new(0);
        let look = async || {
            tokio::time::sleep(Duration::from_secs(5)).await;
            taken.set(taken.get() + 1);
            Err("no".to_owned())
        };
        looks.during(tokio::time::sleep(Duration::from_secs(1)), look).await;
        drop(looks);
        assert_eq!((taken.get(), told.recv().await), (1, None));
    }
}
