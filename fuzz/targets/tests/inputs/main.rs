//! Runs every target on its kept corpus, `fuzz/corpus/<target>.tar.gz`, and on changed inputs of
//! it.
//!
//! The changes are the same in each run: they show whether a parser that was edited still keeps its
//! assertions and budgets near what fuzzing has reached. They do not replace fuzzing.

mod corpus;
mod mutate;

use std::fmt::Write as _;

use taut_fuzz_targets::ALL;

use corpus::corpus;
use mutate::Mutator;

/// Changed inputs of each target.
const CHANGED: usize = 1500;
/// Changed inputs of targets that set up a whole switch or session for each.
const OF_SLOW: usize = 120;
const SLOW: [&str; 3] = ["connection", "handshake", "session"];

#[test]
fn every_input_of_the_corpus_passes() {
    for target in ALL {
        let inputs = corpus(target.name);
        assert!(!inputs.is_empty(), "no inputs for {}", target.name);
        for (name, input) in inputs {
            // A failed test shows this output, so its last line names the input.
            println!("{}: {name}", target.name);
            target.execute(&input);
        }
    }
}

#[test]
fn changed_inputs_of_the_corpus_pass() {
    for target in ALL {
        let inputs: Vec<Vec<u8>> = corpus(target.name).into_iter().map(|(_, input)| input).collect();
        let mut mutator = Mutator::new(target.name);
        for _ in 0..if SLOW.contains(&target.name) { OF_SLOW } else { CHANGED } {
            let input = mutator.changed(&inputs);
            let shown = OnPanic(target.name, &input);
            target.execute(shown.1);
        }
    }
}

/// Shows the input of a target that panics. `fuzz/README.md` tells how to keep it.
struct OnPanic<'a>(&'static str, &'a [u8]);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut hex = String::new();
            for byte in self.1 {
                let _ = write!(hex, "{byte:02x}");
            }
            println!("{}: {hex}", self.0);
        }
    }
}
