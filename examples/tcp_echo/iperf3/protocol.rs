//! The control connection of iperf3: states, a byte each (`iperf_api.h`), and JSON behind its length (`JSON_read` in
//! `iperf_api.c`).

use serde_json::{Value, json};

/// Bytes of the cookie that a client begins each of its connections with (`COOKIE_SIZE`).
pub(crate) const COOKIE: usize = 37;
/// Parallel streams of a test, at most.
pub(crate) const STREAMS: usize = 16;
/// The longest parameters, as iperf3's server has it (`MAX_PARAMS_JSON_STRING`), and the longest results: more than
/// [`STREAMS`] streams need.
const PARAMETERS: usize = 8 << 10;
const RESULTS: usize = 64 << 10;
/// Bytes of a block if the client does not say (`DEFAULT_TCP_BLKSIZE`), and at most (`MAX_BLOCKSIZE`).
const BLOCK: u64 = 128 << 10;
const LONGEST_BLOCK: u64 = 1 << 20;
/// Seconds of a test, at most (`MAX_TIME`).
const LONGEST_TEST: u64 = 86_400;

pub(crate) mod state {
    pub(crate) const TEST_START: u8 = 1;
    pub(crate) const TEST_RUNNING: u8 = 2;
    pub(crate) const TEST_END: u8 = 4;
    pub(crate) const PARAM_EXCHANGE: u8 = 9;
    pub(crate) const CREATE_STREAMS: u8 = 10;
    pub(crate) const CLIENT_TERMINATE: u8 = 12;
    pub(crate) const EXCHANGE_RESULTS: u8 = 13;
    pub(crate) const DISPLAY_RESULTS: u8 = 14;
    pub(crate) const IPERF_DONE: u8 = 16;
    pub(crate) const ACCESS_DENIED: u8 = -1_i8 as u8;
    pub(crate) const SERVER_ERROR: u8 = -2_i8 as u8;
}

/// Why a test ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// JSON of so many bytes.
    #[error("JSON of {0} bytes")]
    Length(u32),
    /// The bytes are no JSON.
    #[error("what was to be JSON is not")]
    Json,
    /// A field that is missing, or is no such value.
    #[error("\"{0}\" is missing or no such value")]
    Field(&'static str),
    /// An option that this server does not have.
    #[error("\"{0}\" is not supported")]
    Unsupported(&'static str),
    /// A test that takes longer than a day, or no time that there is.
    #[error("a test takes 0 to {} seconds", LONGEST_TEST)]
    Duration,
    /// More parallel streams than [`STREAMS`], or none.
    #[error("{0} parallel streams")]
    Parallel(u64),
    /// A stream in the client's results that there was not, or was already.
    #[error("results of a stream {0}")]
    Stream(u64),
    /// A state that the client has no business to say now.
    #[error("unexpected state {0}")]
    State(u8),
    /// The client has ended the test.
    #[error("the client ended the test")]
    Terminated,
    /// The control connection ended.
    #[error("the client closed its control connection")]
    Closed,
    /// Nothing came or went for too long.
    #[error("the client is silent")]
    Silent,
}

impl Error {
    /// The message for the client of an error in its parameters: its number (`i_errno`), and no `errno`.
    pub(crate) fn to_message(self) -> [u8; 9] {
        let number: u32 = match self {
            Self::Unsupported(_) => 13, // IEUNIMP
            Self::Duration => 5,        // IEDURATION
            Self::Parallel(_) => 6,     // IENUMSTREAMS
            _ => 114,                   // IERECVPARAMS
        };
        let mut message = [0; 9];
        message[0] = state::SERVER_ERROR;
        message[1..5].copy_from_slice(&number.to_be_bytes());
        message
    }
}

/// JSON that comes in pieces.
#[derive(Debug)]
pub(crate) struct Frame {
    longest: usize,
    bytes: Vec<u8>,
}

impl Frame {
    pub(crate) fn parameters() -> Self {
        Self::new(PARAMETERS)
    }

    pub(crate) fn results() -> Self {
        Self::new(RESULTS)
    }

    fn new(longest: usize) -> Self {
        let bytes = Vec::new();
        Self { longest, bytes }
    }

    /// The number of further bytes that belong to it, as far as is known; zero if it is whole.
    pub(crate) fn missing(&self) -> Result<usize, Error> {
        let Some((length, text)) = self.bytes.split_first_chunk() else {
            return Ok(4 - self.bytes.len());
        };
        let length = u32::from_be_bytes(*length);
        match usize::try_from(length) {
            Ok(bytes) if (1..=self.longest).contains(&bytes) => Ok(bytes - text.len()),
            _ => Err(Error::Length(length)),
        }
    }

    /// Takes bytes, which have to be no more than are missing.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn object(&self) -> Result<Value, Error> {
        let text = self.bytes.get(4..).unwrap_or_default();
        match serde_json::from_slice(text) {
            Ok(object @ Value::Object(_)) => Ok(object),
            _ => Err(Error::Json),
        }
    }
}

/// A number that counts something; cJSON keeps all as double precision, and writes large ones with an exponent.
fn count(object: &Value, name: &'static str) -> Result<Option<u64>, Error> {
    let Some(value) = object.get(name) else {
        return Ok(None);
    };
    let integer = |number: f64| {
        let whole = (0.0..=9e15).contains(&number) && number.fract() == 0.0;
        whole.then_some(number as u64)
    };
    let number = value.as_u64().or_else(|| value.as_f64().and_then(integer));
    number.map(Some).ok_or(Error::Field(name))
}

/// The parameters of the client (`send_parameters`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// The server sends.
    pub(crate) reverse: bool,
    pub(crate) parallel: usize,
    /// Bytes of all streams that end the test; if none, the client ends it.
    pub(crate) bytes: Option<u64>,
    /// Bytes of a block: a client waits for whole ones, and counts none that are not.
    pub(crate) block: u64,
}

impl Parameters {
    pub(crate) fn parse(frame: &Frame) -> Result<Self, Error> {
        let object = frame.object()?;
        let is = |name| object.get(name) == Some(&Value::Bool(true));
        for name in ["udp", "sctp", "bidirectional", "mptcp"] {
            if is(name) {
                return Err(Error::Unsupported(name));
            }
        }
        if !is("tcp") {
            return Err(Error::Field("tcp"));
        }
        if count(&object, "omit")?.is_some_and(|seconds| seconds != 0) {
            return Err(Error::Unsupported("omit"));
        }
        // The client ends the test; what it asks for has to be possible all the same, as with iperf3's server.
        let Ok(None | Some(0..=LONGEST_TEST)) = count(&object, "time") else {
            return Err(Error::Duration);
        };
        let parallel = count(&object, "parallel")?.unwrap_or(1);
        let streams = usize::try_from(parallel).ok();
        let block = count(&object, "len")?.unwrap_or(BLOCK);
        if !(1..=LONGEST_BLOCK).contains(&block) {
            return Err(Error::Field("len"));
        }
        Ok(Self {
            reverse: is("reverse"),
            parallel: streams
                .filter(|streams| (1..=STREAMS).contains(streams))
                .ok_or(Error::Parallel(parallel))?,
            bytes: count(&object, "num")?.filter(|bytes| *bytes != 0),
            block,
        })
    }
}

/// The number of a stream by its place among those that were connected: 1, 3, 4 and so on (`iperf_add_stream`).
fn id(place: usize) -> u64 {
    place as u64 + if place == 0 { 1 } else { 2 }
}

/// Bytes of each of so many streams, as the client counts them.
pub(crate) fn parse_results(frame: &Frame, streams: usize) -> Result<Vec<u64>, Error> {
    let object = frame.object()?;
    let results = object.get("streams").and_then(Value::as_array);
    let mut bytes = vec![None; streams];
    for stream in results.ok_or(Error::Field("streams"))? {
        let number = count(stream, "id")?.ok_or(Error::Field("id"))?;
        let place = (0..streams).find(|place| id(*place) == number);
        let place = place.and_then(|place| bytes.get_mut(place));
        match place {
            Some(place @ None) => {
                *place = Some(count(stream, "bytes")?.ok_or(Error::Field("bytes"))?);
            }
            _ => return Err(Error::Stream(number)),
        }
    }
    bytes
        .into_iter()
        .map(|bytes| bytes.ok_or(Error::Field("streams")))
        .collect()
}

/// The server's counts of each stream, which took so many seconds (`send_results`), behind its length.
pub(crate) fn results(bytes: impl Iterator<Item = u64>, reverse: bool, seconds: f64) -> Vec<u8> {
    let stream = |(place, bytes)| {
        json!({
            "id": id(place), "bytes": bytes, "retransmits": -1, "jitter": 0, "errors": 0, "packets": 0,
            "omitted_errors": 0, "omitted_packets": 0, "start_time": 0, "end_time": seconds,
        })
    };
    let results = json!({
        // The processor's time is not measured.
        "cpu_util_total": 0, "cpu_util_user": 0, "cpu_util_system": 0,
        "sender_has_retransmits": if reverse { 0 } else { -1 },
        "streams": bytes.enumerate().map(stream).collect::<Vec<_>>(),
    });
    let text = results.to_string();
    let length = text.len() as u32;
    [&length.to_be_bytes(), text.as_bytes()].concat()
}
