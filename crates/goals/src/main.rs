//! `taut-goals`: measures the goals of a set.
//!
//! Exit status: 0 if every goal was measured, met or missed; 3 if one was not measured; 1 if the
//! run could not begin; 2 for a wrong command line.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};
use taut_api::calendar::Utc;
use taut_goals::lab::{Setup, clear_away_the_dead};
use taut_goals::machine::{Launch, ThisMachine, launch, watch_for_interrupts};
use taut_goals::reason::{Context, Measured, require};
use taut_goals::row::Row;
use taut_goals::run::{self, Report};
use taut_goals::sets;

/// Measure taut's goals
#[derive(Debug, Parser)]
#[command(name = "taut-goals", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the rows of a set. Exit status: 0 if every goal was measured, met or missed; 3 if
    /// one was not measured
    Run(Run),
    /// List the sets, their rows and goals
    List,
    /// Become a program in a session of its own
    #[command(hide = true)]
    Launch(Launch),
}

#[derive(Debug, Args)]
struct Run {
    /// Set of rows
    set: String,
    /// Rows to measure, separated by spaces or commas; all if there are none
    #[arg(long, default_value = "")]
    rows: String,
    /// Shorten rows, and mark their lines
    #[arg(long)]
    quick: bool,
    /// Folder of taut's programs
    #[arg(long, default_value = "target/release")]
    programs: PathBuf,
    /// Folder of guest images
    #[arg(long, default_value = "target/images")]
    images: PathBuf,
    /// The checkout
    #[arg(long, default_value = ".")]
    checkout: PathBuf,
    /// Folder for results; each run makes a new folder in it
    #[arg(long, default_value = "target/goals")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Launch(options) => {
            let error = launch(&options);
            eprintln!("{}: {error}", options.words[0].display());
            ExitCode::from(127)
        }
        Command::List => {
            list();
            ExitCode::SUCCESS
        }
        Command::Run(options) => measure(&options).unwrap_or_else(|reason| {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }),
    }
}

fn list() {
    for set in sets::ALL {
        println!("{}: {}", set.name, set.what);
        for row in set.rows {
            println!("  {}: {}, on {}", row.id, row.what, row.on);
            for goal in row.goals {
                let bounds: Vec<String> = goal.bounds.iter().map(ToString::to_string).collect();
                let beside: Vec<String> = goal.beside.iter().map(ToString::to_string).collect();
                let beside =
                    if beside.is_empty() { String::new() } else { format!(", beside {}", beside.join(", ")) };
                println!("    {} ({}){beside}", goal.id, bounds.join(", "));
            }
        }
    }
}

fn measure(options: &Run) -> Measured<ExitCode> {
    let names: Vec<&str> = sets::ALL.iter().map(|set| set.name).collect();
    let set = sets::ALL.iter().find(|set| set.name == options.set);
    let Some(set) = set else {
        eprintln!("error: no set {}\nhint: there are {}", options.set, names.join(", "));
        return Ok(ExitCode::from(2));
    };
    let wanted: Vec<&str> = options.rows.split([' ', ',']).filter(|name| !name.is_empty()).collect();
    if let Some(unknown) = wanted.iter().find(|name| !set.rows.iter().any(|row| row.id == **name)) {
        let rows: Vec<&str> = set.rows.iter().map(|row| row.id).collect();
        eprintln!("error: the set {} has no row {unknown}\nhint: there are {}", set.name, rows.join(", "));
        return Ok(ExitCode::from(2));
    }
    let rows: Vec<&Row> =
        set.rows.iter().copied().filter(|row| wanted.is_empty() || wanted.contains(&row.id)).collect();
    watch_for_interrupts()?;
    let absolute = |path: &PathBuf| fs::canonicalize(path).when(path.display());
    let setup = Setup {
        programs: absolute(&options.programs)?,
        // Rows that need an image say so if it is missing.
        images: std::path::absolute(&options.images)?,
        checkout: absolute(&options.checkout)?,
        quick: options.quick,
    };
    require(
        setup.checkout.join("Cargo.toml").exists(),
        format!("{} is no checkout", setup.checkout.display()),
    )?;
    let time = now();
    let folder = run::make_folder(&options.out, set.name, &time)?;
    let mut machine = ThisMachine::new(&folder);
    clear_away_the_dead(&mut machine, &setup)?;
    let outcomes = run::run(&mut machine, &setup, &rows, &folder);
    let report = Report::new(&mut machine, &setup.checkout, set.name, &time, outcomes);
    println!("\n{report}");
    fs::write(folder.join("goals.txt"), format!("{report}\n"))?;
    fs::write(folder.join("goals.json"), serde_json::to_string_pretty(&report)? + "\n")?;
    println!("results: {}", folder.display());
    Ok(ExitCode::from(if report.is_complete() { 0 } else { 3 }))
}

/// Returns the time now as part of a file's name, in UTC.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Utc::from_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)).file_name()
}
