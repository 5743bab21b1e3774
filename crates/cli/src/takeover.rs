//! `forebay takeover`: takes a store from a server that is to go.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::output::Output;
use crate::pool::PoolOptions;
use crate::shared::{FenceOptions, Place};

const AFTER_HELP: &str = "\
Examples:
  forebay takeover --media rados:ec,meta --name buffer1
      fences the server that has the store, at once, whether it lives or not; the next one that is started, or a standby, has it
  forebay takeover --fence-command '/etc/forebay/fence' /mnt/cephfs/store/drive0
      the same for a file that several machines mount: the command makes sure that the other server has ended, or can write no more

The server that is fenced can write nothing from then on and ends by itself; what it acknowledged stays. This takes some seconds: so long a server may
answer what it has in memory without asking anybody.

Exit codes: 0 when nobody has the store any more; 2 when the options name none; 3 when the cluster does not answer or refuses, or the fencing command does
not end with 0: nothing was taken then.";

/// The options of `takeover`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TakeoverCommand {
    #[command(flatten)]
    pool: PoolOptions,

    #[command(flatten)]
    fence: FenceOptions,

    /// With --fence-command: the drives of the store, in any order
    #[arg(value_name = "DRIVE", conflicts_with = "media")]
    drives: Vec<PathBuf>,
}

/// Takes the store from whoever has it.
///
/// # Errors
/// Why it was not.
pub fn run(command: &TakeoverCommand, output: &Output) -> Result<(), Failure> {
    match (command.pool.store(), command.fence.command()) {
        (Some(store), _) => take_over(store, output),
        (None, Some(fence)) if !command.drives.is_empty() => take_over_files(&command.drives, fence, output),
        (None, Some(_)) => Err(Failure::usage("say which store: name its drives. Nothing was done")),
        (None, None) if !command.drives.is_empty() => Err(Failure::usage(
            "a store on drives is whoever's has the drives, and nothing keeps a server away that is to go. Nothing was done. Stop that server; or, when the drives are \
             files that both machines mount, say with --fence-command how it is ended for certain",
        )),
        (None, None) => Err(Failure::usage(
            "say which store: --media rados:POOL,META_POOL --name NAME, or --fence-command COMMAND DRIVE... Nothing was done",
        )),
    }
}

fn take_over_files(drives: &[PathBuf], fence: &str, output: &Output) -> Result<(), Failure> {
    let interrupt = crate::interrupt::Interrupt::catch()?;
    let start = std::time::Instant::now();
    if Place::find(drives, fence, None)?.take_over(&|| interrupt.is_set())?.is_none() {
        return Err(Failure::retry(
            "stopped; the store may be fenced, and still be whoever's it was: type the same again",
        ));
    }
    let seconds = start.elapsed().as_secs_f64();
    output.line(&format!("nobody has the store any more, after {seconds:.1} s"));
    output.object(&serde_json::json!({ "seconds": seconds }));
    Ok(())
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
