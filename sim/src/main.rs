//! Plays seeds.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser;
use forebay_sim::{Fault, Mistake, Totals, find, play};

#[derive(Parser)]
#[command(about = "Plays the store on virtual time, seed after seed, on drives and a network that fail")]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Tell everything that happens.
    #[arg(long)]
    trace: bool,
    /// Plant this mistake and say in which seed it is found; `all`: each of them.
    #[arg(long)]
    planted: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(name) = &arguments.planted {
        return look_for(name, arguments.seed..arguments.seed + arguments.seeds);
    }
    let mut totals = Totals::default();
    let mut failed = 0;
    for seed in arguments.seed..arguments.seed + arguments.seeds {
        match catch_unwind(AssertUnwindSafe(|| play(seed, arguments.trace))) {
            Ok(of_seed) => totals.add(&of_seed),
            Err(_) => {
                eprintln!("seed {seed} fails: forebay-sim --seed {seed} --trace");
                failed += 1;
            }
        }
    }
    println!(
        "{} seeds, {failed} failed, {} operations, {} media operations, {} starts, {} s, {:?}",
        arguments.seeds,
        totals.answers.operations(),
        totals.media_operations,
        totals.starts,
        totals.seconds,
        totals.answers
    );
    for fault in Fault::ALL {
        println!("{:>10} fired {:>10} met  {fault}", totals.faults.fired(*fault), totals.faults.met(*fault));
    }
    ExitCode::from(u8::from(failed > 0))
}

/// Whether each of the mistakes is found in one of the seeds.
fn look_for(name: &str, seeds: Range<u64>) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = 0;
    for mistake in Mistake::all().filter(|mistake| name == "all" || mistake.to_string() == name) {
        let found = seeds.clone().find_map(|seed| find(mistake, seed).map(|what| (seed, what)));
        match found {
            Some((seed, what)) => println!("{mistake}: seed {seed}: {}", what.lines().next().unwrap_or_default()),
            None => {
                println!("{mistake}: not found");
                missed += 1;
            }
        }
    }
    ExitCode::from(u8::from(missed > 0))
}
