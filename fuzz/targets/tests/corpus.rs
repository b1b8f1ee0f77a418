//! What fuzzing has found interesting so far, once more.

use std::path::Path;

#[test]
fn the_corpus_still_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    for (name, run) in taut_fuzz_targets::ALL {
        let mut inputs = 0;
        for entry in std::fs::read_dir(corpus.join(name)).unwrap() {
            let path = entry.unwrap().path();
            let input = std::fs::read(&path).unwrap();
            // Told by the panic's own message if it fails.
            println!("{}", path.display());
            run(&input);
            inputs += 1;
        }
        assert!(inputs > 0, "no inputs for {name}");
    }
}
