//! Progress of what takes long, for a person at a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is done by then needs no bar.
const SHORT: Duration = Duration::from_secs(2);

/// A bar on standard error, if that is a terminal, from two seconds on.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    begun: Duration,
    /// None once it is in use.
    target: Option<ProgressDrawTarget>,
}

impl Progress {
    /// Of `length` things of this kind, which begin at `now`.
    pub fn new(length: u64, unit: &'static str, now: Duration) -> Self {
        Self::on(ProgressDrawTarget::stderr(), length, unit, now)
    }

    fn on(target: ProgressDrawTarget, length: u64, unit: &'static str, now: Duration) -> Self {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template(
            "  [{bar:40}] {pos}/{len} {prefix}, {elapsed} passed, {eta} left  {msg}",
        );
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.set_prefix(unit);
        Self {
            bar,
            begun: now,
            target: Some(target),
        }
    }

    /// So many are done, and what comes next.
    pub fn set(&mut self, now: Duration, done: u64, next: impl FnOnce() -> String) {
        if now.saturating_sub(self.begun) >= SHORT {
            self.show();
        }
        if self.target.is_none() {
            self.bar.set_message(next());
        }
        self.bar.set_position(done);
    }

    /// Shows it from now on: it is known that it takes long.
    pub fn show(&mut self) {
        if let Some(target) = self.target.take() {
            self.bar.set_draw_target(target);
        }
    }

    /// Prints something else meanwhile.
    pub fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Takes it away.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps what is written.
    #[derive(Debug, Clone, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl Terminal {
        fn taken(&self) -> String {
            std::mem::take(&mut self.0.lock().expect("text"))
        }
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            200
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("text").push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn progress(terminal: &Terminal) -> Progress {
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        Progress::on(target, 10, "things", Duration::from_secs(100))
    }

    #[test]
    fn it_is_shown_after_two_seconds() {
        let terminal = Terminal::default();
        let mut progress = progress(&terminal);
        progress.set(Duration::from_millis(101_999), 4, String::new);
        assert_eq!(terminal.taken(), "");
        progress.set(Duration::from_secs(102), 5, || "the sixth".into());
        let shown = terminal.taken();
        assert!(
            shown.contains("5/10 things") && shown.contains("the sixth"),
            "{shown}"
        );
        progress.finish();
    }

    #[test]
    fn what_is_known_to_take_long_is_shown_at_once() {
        let terminal = Terminal::default();
        let mut progress = progress(&terminal);
        progress.show();
        progress.set(Duration::from_secs(100), 0, || "the first".into());
        assert!(terminal.taken().contains("the first"));
    }

    #[test]
    fn what_is_short_prints_nothing() {
        let terminal = Terminal::default();
        let mut progress = progress(&terminal);
        for done in 0..=10 {
            progress.set(Duration::from_millis(100_000 + done), done, String::new);
            progress.beside(|| ());
        }
        progress.finish();
        assert_eq!(terminal.taken(), "");
    }
}
