//! Where the shared test data lies, for every vector test.

use std::path::{Path, PathBuf};

/// The text of `shared/data/<name>`.
///
/// Looked for in `$WEIR_SHARED/data`, then beside the repository (`../shared/data`), then one level higher, then among
/// the copies in `tests/data`.
pub fn shared_data(name: &str) -> String {
    // Of any package of the tree: its root is the one that has the copies.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_root = |folder: &&Path| folder.join("tests/data").is_dir();
    let root = package.ancestors().find(is_root).expect("tests/data");
    let mut places = vec![
        root.join("../shared/data"),
        root.join("../../shared/data"),
        root.join("tests/data"),
    ];
    if let Some(shared) = std::env::var_os("WEIR_SHARED") {
        places.insert(0, PathBuf::from(shared).join("data"));
    }
    for place in &places {
        if let Ok(text) = std::fs::read_to_string(place.join(name)) {
            return text;
        }
    }
    panic!(
        "the test data file {name} was not found in {places:?}; set WEIR_SHARED to the directory that holds data/{name}"
    );
}
