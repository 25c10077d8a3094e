//! The states of a connection, and of the exchange about its alternate path.

/// The state of a connection (IBTA volume 1, chapter 12.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Nothing under way: the connection failed, was rejected, or its timewait is over.
    Idle,
    /// REQ sent, no answer yet.
    ReqSent,
    /// REQ received, not answered yet.
    ReqReceived,
    /// REQ received, MRA sent.
    MraReqSent,
    /// REQ sent, MRA received.
    MraReqReceived,
    /// REP sent, no answer yet.
    RepSent,
    /// REP received, not answered yet.
    RepReceived,
    /// REP received, MRA sent.
    MraRepSent,
    /// REP sent, MRA received.
    MraRepReceived,
    /// Connected.
    Established,
    /// DREQ sent, no answer yet.
    DreqSent,
    /// DREQ received, not answered yet.
    DreqReceived,
    /// Over; waiting until no packet of it can be left in the fabric.
    Timewait,
}

/// The state of the exchange about an alternate path (IBTA volume 1, chapter 12.9.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LapState {
    /// Nothing under way.
    Idle,
    /// LAP sent, no answer yet.
    Sent,
    /// LAP received, not answered yet.
    Received,
    /// LAP received, MRA sent.
    MraSent,
    /// LAP sent, MRA received.
    MraReceived,
}
