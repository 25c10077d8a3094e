//! BlueFlame: short WQEs through a write-combining doorbell page. The traffic of `tests/verbs` runs here once more, and
//! the cards' counts say which way it went.

mod counts;
#[path = "../verbs/datagrams.rs"]
mod datagrams;
#[path = "../verbs/lab.rs"]
#[allow(dead_code, reason = "the other tests of verbs use the rest")]
mod lab;
#[path = "../verbs/rc_traffic.rs"]
mod rc_traffic;
mod seam;
#[path = "../verbs/threads.rs"]
mod threads;
#[path = "../verbs/uc_traffic.rs"]
mod uc_traffic;
#[path = "../verbs/xrc.rs"]
mod xrc;
