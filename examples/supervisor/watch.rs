//! Reads the file of services repeatedly, and reports its changes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::Config;

/// The last content that was read, and the last content that was parsed.
#[derive(Debug)]
pub(crate) struct FileWatch {
    path: PathBuf,
    seen: Reading,
    judged: Reading,
}

/// The whole content, or the error. The file is small, and an edit may keep its time and size but never its content.
type Reading = Result<Vec<u8>, String>;

impl FileWatch {
    /// Reads the file for the first time. The error is one line with the path.
    pub(crate) fn open(path: &Path) -> Result<(Self, Config), String> {
        let seen = read(path);
        let config = judge(&seen, path)?;
        Ok((Self { path: path.to_owned(), judged: seen.clone(), seen }, config))
    }

    /// Reads the file again. Returns `None` if there is neither new content nor a new error.
    ///
    /// An editor may have written only half of the file, and half a file can be valid but lack services. New content
    /// counts only when two reads in a row return it, unless the caller knows that it is `whole`.
    pub(crate) fn look(&mut self, whole: bool) -> Option<Result<Config, String>> {
        let reading = read(&self.path);
        let settled = whole || self.seen == reading;
        self.seen = reading;
        if !settled || self.judged == self.seen {
            return None;
        }
        self.judged.clone_from(&self.seen);
        Some(judge(&self.judged, &self.path))
    }
}

fn read(path: &Path) -> Reading {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn judge(reading: &Reading, path: &Path) -> Result<Config, String> {
    let content = reading.as_ref().map_err(String::clone)?;
    Config::read(content, path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "[[service]]\nname = 'a'\ncommand = 'true'\n[[service]]\nname = 'b'\ncommand = 'true'\n";

    fn watched() -> (tempfile::TempDir, PathBuf, FileWatch) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("services.toml");
        fs::write(&path, TWO).unwrap();
        let (watch, config) = FileWatch::open(&path).unwrap();
        assert_eq!(config.services.len(), 2);
        (folder, path, watch)
    }

    #[test]
    fn an_edit_counts_when_it_has_been_seen_twice_and_then_once() {
        let (_folder, path, mut watch) = watched();
        assert!(watch.look(false).is_none());
        fs::write(&path, "service = []").unwrap();
        assert!(watch.look(false).is_none());
        assert_eq!(watch.look(false).unwrap().unwrap().services.len(), 0);
        assert!(watch.look(false).is_none());
    }

    #[test]
    fn half_a_file_is_never_taken_for_the_whole() {
        let (_folder, path, mut watch) = watched();
        for length in 0..TWO.len() {
            fs::write(&path, &TWO[..length]).unwrap();
            assert!(watch.look(false).is_none());
        }
        fs::write(&path, TWO).unwrap();
        assert!(watch.look(false).is_none());
        assert!(watch.look(false).is_none(), "the content is unchanged");
    }

    #[test]
    fn a_file_that_is_known_to_be_whole_counts_at_once() {
        let (_folder, path, mut watch) = watched();
        assert!(watch.look(true).is_none());
        fs::write(&path, "service = []").unwrap();
        assert_eq!(watch.look(true).unwrap().unwrap().services.len(), 0);
    }

    #[test]
    fn a_fault_is_told_once_and_so_is_its_repair() {
        let (_folder, path, mut watch) = watched();
        fs::write(&path, "service = 5").unwrap();
        assert!(watch.look(true).unwrap().is_err());
        assert!(watch.look(true).is_none());
        fs::remove_file(&path).unwrap();
        assert!(watch.look(true).unwrap().unwrap_err().contains("services.toml: "));
        assert!(watch.look(true).is_none());
        fs::write(&path, TWO).unwrap();
        assert_eq!(watch.look(true).unwrap().unwrap().services.len(), 2);
    }
}
