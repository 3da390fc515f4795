//! A deadline that counts only the time in which this program runs. After a stop, a freeze or a time without
//! CPU, the answer has mostly come, and only has to be read.

use std::{pin::pin, time::Duration};

use tokio::time;

/// A pause of this program counts as one part in this many of the deadline, however long it was.
const TURNS: u32 = 20;

/// Waits for `answer` until the deadline; `None` if it did not come.
pub(crate) async fn within<T>(span: Duration, answer: impl Future<Output = T>) -> Option<T> {
    let mut answer = pin!(answer);
    for _ in 0..TURNS {
        if let Ok(answer) = time::timeout(span / TURNS, &mut answer).await {
            return Some(answer);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        sync::oneshot,
        time::{self, Instant},
    };

    use super::within;

    const SPAN: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn it_waits_for_the_whole_time_and_no_longer() {
        let begun = Instant::now();
        assert_eq!(within(SPAN, std::future::pending::<()>()).await, None);
        assert_eq!(begun.elapsed(), SPAN);
        assert_eq!(within(SPAN, async { 7 }).await, Some(7));
    }

    /// The task that has the answer runs only after the deadline is over.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_came_while_nothing_ran_is_taken() {
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            time::advance(SPAN * 10).await;
            answer.send(7).expect("it is waited for");
        });
        assert_eq!(within(SPAN, answered).await, Some(Ok(7)));
    }
}
