//! Replays the kept corpus, `fuzz/corpus/<target>.tar.gz`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use tar::Archive;

#[test]
fn every_input_of_the_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    for (name, run) in taut_fuzz_targets::ALL {
        let path = corpus.join(format!("{name}.tar.gz"));
        let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut inputs = 0;
        for entry in Archive::new(GzDecoder::new(file)).entries().unwrap() {
            let mut entry = entry.unwrap();
            // A failed test shows this output, so its last line names the input.
            println!("{name}: {}", entry.path().unwrap().display());
            let mut input = Vec::new();
            entry.read_to_end(&mut input).unwrap();
            run(&input);
            inputs += 1;
        }
        assert!(inputs > 0, "no inputs for {name}");
    }
}
