//! `forebay takeover`: takes a store from a server that is to go.

use clap::Args;

use crate::failure::Failure;
use crate::output::Output;
use crate::pool::PoolOptions;

const AFTER_HELP: &str = "\
Examples:
  forebay takeover --media rados:ec,meta --name buffer1
      fences the server that has the store, at once, whether it lives or not; the next one that is started, or a standby, has it

The server that is fenced can write nothing from then on and ends by itself; what it acknowledged stays. This takes some seconds: so long a server may
answer what it has in memory without asking the cluster.

Exit codes: 0 when nobody has the store any more; 2 when the options name none; 3 when the cluster does not answer or refuses.";

/// The options of `takeover`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TakeoverCommand {
    #[command(flatten)]
    pool: PoolOptions,
}

/// Takes the store from whoever has it.
///
/// # Errors
/// Why it was not.
pub fn run(command: &TakeoverCommand, output: &Output) -> Result<(), Failure> {
    let Some(store) = command.pool.store() else {
        return Err(Failure::usage("say which store: --media rados:POOL,META_POOL --name NAME. Nothing was done"));
    };
    take_over(store, output)
}

#[cfg(feature = "rados")]
fn take_over(store: (&crate::pool::Pools, &str), output: &Output) -> Result<(), Failure> {
    let interrupt = crate::interrupt::Interrupt::catch()?;
    let start = std::time::Instant::now();
    let objects = crate::rados::Place::open(store, None)?.take_over(&|| interrupt.is_set())?;
    let seconds = start.elapsed().as_secs_f64();
    output.line(&format!(
        "nobody has store {} any more, after {seconds:.1} s; it has {objects} objects of data",
        store.1
    ));
    output.object(&serde_json::json!({ "name": store.1, "objects": objects, "seconds": seconds }));
    Ok(())
}

#[cfg(not(feature = "rados"))]
fn take_over(_: (&crate::pool::Pools, &str), _: &Output) -> Result<(), Failure> {
    Err(crate::pool::not_built())
}
