//! Plays seeds.

mod soak;

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use forebay_sim::{
    Fault, Mistake, MoverFault, MoverTotals, Play, Totals, play, search, shrink, try_play, try_play_mover,
};

#[derive(Parser)]
#[command(about = "Plays the store on virtual time, seed after seed, on drives and a network that fail")]
struct Arguments {
    #[command(flatten)]
    play: Play,
    /// How many seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Tell everything that happens.
    #[arg(long, conflicts_with = "seeds")]
    trace: bool,
    /// Play the mover, in a world of its own, instead of the store.
    #[arg(long, conflicts_with_all = ["shrink", "soak"])]
    mover: bool,
    /// Plant this mistake and say in which seed it is found; `all`: each of them.
    #[arg(long, value_parser = planted_names())]
    planted: Option<String>,
    /// Leave out of a seed that fails whatever it fails without, and say how the rest is played.
    #[arg(long)]
    shrink: bool,
    /// Play seeds on all processors and add what they come to to this file, beginning where an earlier run ended, until somebody interrupts.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "trace", "planted", "shrink"])]
    soak: Option<PathBuf>,
    /// End that after so many seconds.
    #[arg(long, requires = "soak")]
    seconds: Option<u64>,
    /// Seeds at once; as many as there are processors when not given.
    #[arg(long, requires = "soak")]
    threads: Option<usize>,
}

fn planted_names() -> PossibleValuesParser {
    PossibleValuesParser::new(std::iter::once("all").chain(Mistake::all().map(Mistake::name)))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(file) = &arguments.soak {
        return soak::soak(file, arguments.seconds, arguments.threads, &arguments.play);
    }
    if arguments.mover && arguments.planted.is_none() {
        return play_movers(arguments.play.seed..arguments.play.seed + arguments.seeds, arguments.trace);
    }
    if arguments.trace {
        tell_totals(1, 0, &play(&arguments.play, true));
        return ExitCode::SUCCESS;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let mistake = arguments.planted.as_deref().and_then(Mistake::named);
    if arguments.shrink {
        return make_shorter(&arguments.play, mistake);
    }
    let seeds = arguments.play.seed..arguments.play.seed + arguments.seeds;
    match &arguments.planted {
        Some(name) => look_for(name, seeds),
        None => play_all(&arguments.play, seeds),
    }
}

/// Plays seeds one after the other.
fn play_all(options: &Play, seeds: Range<u64>) -> ExitCode {
    let mut totals = Totals::default();
    let (count, mut failed) = (seeds.end - seeds.start, 0);
    for seed in seeds {
        let play = Play { seed, ..options.clone() };
        match try_play(&play, None) {
            Ok(of_seed) => totals.add(&of_seed),
            Err(what) => {
                tell_failure(&play, &what);
                failed += 1;
            }
        }
    }
    tell_totals(count, failed, &totals);
    ExitCode::from(u8::from(failed > 0))
}

/// Plays seeds of the mover.
fn play_movers(seeds: Range<u64>, told: bool) -> ExitCode {
    let mut totals = MoverTotals::default();
    let (count, mut failed) = (seeds.end - seeds.start, 0);
    if !told {
        std::panic::set_hook(Box::new(|_| {}));
    }
    for seed in seeds {
        match try_play_mover(seed, told, None) {
            Ok(of_seed) => totals.add(&of_seed),
            Err(what) => {
                eprintln!("seed {seed} fails: {what}\n  forebay-sim --mover --seed {seed} --trace");
                failed += 1;
            }
        }
    }
    let MoverTotals { steps, released, starts, .. } = totals;
    println!("{count} seeds of the mover, {failed} failed, {steps} steps, {released} files released, {starts} starts");
    for fault in MoverFault::ALL {
        let (fired, met) = totals.faults.get(&fault).copied().unwrap_or_default();
        println!("{fired:>10} fired {met:>10} met  {fault}");
    }
    ExitCode::from(u8::from(failed > 0))
}

fn tell_failure(play: &Play, what: &str) {
    eprintln!("seed {} fails: {what}\n  forebay-sim {play} --trace\n  forebay-sim {play} --shrink", play.seed);
}

fn tell_totals(seeds: u64, failed: u64, totals: &Totals) {
    println!(
        "{seeds} seeds, {failed} failed, {} operations, {} media operations, {} starts, {} s, {:?}",
        totals.answers.operations(),
        totals.media_operations,
        totals.starts,
        totals.seconds,
        totals.answers
    );
    let [_, monitors, movers, filters] = totals.pressed;
    println!("lanes began to slow monitors {monitors} times, movers too {movers} times, filters too {filters} times");
    tell_faults(totals);
}

fn tell_faults(totals: &Totals) {
    for fault in Fault::ALL {
        println!("{:>10} fired {:>10} met  {fault}", totals.faults.fired(*fault), totals.faults.met(*fault));
    }
}

/// Finds how little of a play still fails.
fn make_shorter(play: &Play, mistake: Option<Mistake>) -> ExitCode {
    let Err(first) = try_play(play, mistake) else {
        println!("{play}: nothing fails");
        return ExitCode::FAILURE;
    };
    println!("{play}: {first}");
    let (mut tries, mut words) = (0, first);
    let short = shrink(play, |shorter| {
        tries += 1;
        let what = try_play(shorter, mistake).err()?;
        println!("{shorter}: {}", what.lines().next().unwrap_or_default());
        words.clone_from(&what);
        Some(what)
    });
    let planted = mistake.map_or(String::new(), |mistake| format!(" --planted {mistake}"));
    println!("the shortest of {tries}: {words}\n  forebay-sim {short}{planted} --trace");
    ExitCode::SUCCESS
}

/// Whether each of the mistakes is found in one of the seeds.
fn look_for(name: &str, seeds: Range<u64>) -> ExitCode {
    let planted: Vec<Mistake> = Mistake::all().filter(|mistake| name == "all" || mistake.name() == name).collect();
    let missed = search(planted.iter().copied(), seeds, |mistake, seed, what| {
        println!("{mistake}: seed {seed}: {}", what.lines().next().unwrap_or_default());
    });
    for mistake in &missed {
        println!("{mistake}: not found");
    }
    println!("planted {}, found {}", planted.len(), planted.len() - missed.len());
    ExitCode::from(u8::from(!missed.is_empty()))
}
