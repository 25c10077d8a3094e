//! Bandwidth, message rate and latency of RDMA WRITE, READ, SEND and atomics over message sizes and queue depths, in
//! perftest's table form. With `--device model` (the default) both ends run here, on two device models with a cable between
//! them; with `--device vfio:BDF` one end runs on a card, with `--device vfio:BDF,vfio:BDF` both.
//!
//! ```text
//! perf --device vfio:0000:3b:00.0 -s -a 192.0.2.1
//! perf --device vfio:0000:3b:00.1 -c -I 192.0.2.2 -a 192.0.2.1 --plot perf.svg
//! ```
//!
//! The client says what is measured, and the server follows. On the model it is the model that is measured, which runs on
//! the same processor as the driver.

mod cli;
mod echo;
mod flow;
mod measure;
mod plot;
mod protocol;
mod report;
mod session;
mod test;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use bareverbs::cm::rdma::{AddrInfo, PortSpace, RdmaCm, Resolver, SockAddr};
use bareverbs::verbs::Platform;
use bareverbs_examples::Result;
use bareverbs_examples::program::{self, Program};
use bareverbs_examples::progress::Progress;
use bareverbs_node::{About, Cm, Host};
use cli::{Options, options};
use flow::Budget;
use report::Row;
use session::Session;
use test::Test;

fn main() -> ExitCode {
    program::main("perf", &options(), run)
}

fn run(options: &Options) -> Result<()> {
    let path = options.plot.as_ref();
    let failed = |path: &PathBuf, error| format!("{}: {error}", path.display());
    // Before hours of measuring.
    if let Some(path) = path {
        File::create(path).map_err(|error| failed(path, error))?;
    }
    let Some(found) = options.ends.run(options)? else {
        return Ok(());
    };
    if options.json {
        println!("{}", report::json(&found.rows));
    }
    if let Some(path) = path {
        let caption = plot::Caption {
            device: options.ends.cards.shown(),
            port: found.port,
            each: options.budget().to_string(),
            time: SystemTime::now(),
        };
        std::fs::write(path, plot::svg(&found.rows, &caption)?)
            .map_err(|error| failed(path, error))?;
        // Standard output may be JSON.
        eprintln!("perf: the plot is in {}", path.display());
    }
    Ok(())
}

/// A client finds these results.
struct Found {
    rows: Vec<Row>,
    /// Its port, and the firmware.
    port: String,
}

impl Program for Options {
    /// The number of tests.
    type Served = u64;
    type Found = Found;

    fn name(&self) -> &'static str {
        "perf"
    }
    const CLIENT: usize = 0;

    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<u64> {
        serve(cm, address.at(PortSpace::Tcp, self.port), listening)
    }

    fn work(
        &self,
        cm: &mut Cm<'_, '_>,
        about: &About,
        [here, server]: [Host; 2],
        _: bool,
    ) -> Result<Found> {
        let rows = work(cm, here, server.at(PortSpace::Tcp, self.port), self)?;
        let port = format!("firmware {}, {}", about.firmware, about.port);
        Ok(Found { rows, port })
    }

    fn announce(&self, address: Host) {
        println!("listening on {address} port {}", self.port);
    }

    fn compare(&self, tests: &u64, Found { rows, .. }: &Found) -> Result<()> {
        let rows = rows.len();
        if *tests == rows as u64 {
            return Ok(());
        }
        Err(format!("the server counts {tests} tests, the client {rows}").into())
    }
}

/// Serves one client. How many tests there were.
fn serve<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    address: SockAddr,
    listening: &mut dyn FnMut(),
) -> Result<u64> {
    let address = AddrInfo {
        port_space: PortSpace::Tcp,
        src_addr: Some(address),
        ..AddrInfo::hints(true)
    };
    let listener = cm.create_ep(&address, None, None)?;
    cm.listen(listener, 4)?;
    listening();
    let mut session = Session::accept(cm, listener)?;
    let tests = measure::follow(&mut session);
    let tests = session.close(tests)?;
    cm.destroy_ep(listener)?;
    Ok(tests)
}

/// The way from an address to a server.
fn route(here: Host, server: SockAddr) -> AddrInfo {
    AddrInfo {
        port_space: PortSpace::Tcp,
        src_addr: Some(here.at(PortSpace::Tcp, 0)),
        dst_addr: Some(server),
        ..AddrInfo::hints(false)
    }
}

/// Measures all that is asked for.
fn work<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    here: Host,
    server: SockAddr,
    options: &Options,
) -> Result<Vec<Row>> {
    let mut session = Session::connect(cm, &route(here, server), options.limits())?;
    let rows = measure_all(&mut session, options);
    session.close(rows)
}

fn measure_all<P: Platform, R: Resolver>(
    session: &mut Session<'_, '_, '_, P, R>,
    options: &Options,
) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut refused = None;
    let tests = options.tests();
    let begun = Instant::now();
    let mut progress = Progress::new(tests.len() as u64, "measurements", Duration::ZERO);
    if let Budget::Time(_) = options.budget() {
        progress.show();
    }
    for (done, test) in tests.into_iter().enumerate() {
        progress.set(begun.elapsed(), done as u64, || {
            let Test { size, depth, .. } = test;
            format!("{}, {size} bytes, depth {depth}", test.name())
        });
        if let Some(reason) = session.refusal(&test) {
            progress.beside(|| eprintln!("perf: skipped {reason}"));
            refused = Some(reason);
            continue;
        }
        let same_table = |row: &Row| {
            let size = row.test.size;
            Test { size, ..test } == row.test
        };
        if !options.json && !rows.last().is_some_and(same_table) {
            progress.beside(|| report::heading(&test));
        }
        let (iterations, numbers) = measure::measure(session, test, options.budget())
            .map_err(|error| format!("{}, {} bytes: {error}", test.name(), test.size))?;
        let row = Row {
            test,
            iterations,
            numbers,
        };
        if !options.json {
            progress.beside(|| report::line(&row));
        }
        rows.push(row);
    }
    progress.finish();
    if let (true, Some(reason)) = (rows.is_empty(), refused) {
        return Err(reason.into());
    }
    Ok(rows)
}
