//! Two directories, and a mirror as a process that keeps them equal.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::process::Program;
use crate::until::until;
use homeostat_test_support::example;

const NOBODY: u32 = 65_534;

/// The content of a directory: files with permissions, and targets of links.
pub(crate) type Tree = BTreeMap<PathBuf, (Vec<u8>, u32)>;

/// A source with entries of all kinds, and the path of its target.
pub(crate) struct Pair {
    folder: TempDir,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let pair = Self { folder: tempfile::tempdir().unwrap() };
        pair.write("source/top.txt", "top");
        pair.write("source/empty.txt", "");
        pair.write("source/a/b/c/deep.txt", "deep");
        pair.write("source/a/large.bin", &"0123456789".repeat(100_000));
        pair.write("source/a/run.sh", "#!/bin/sh\n");
        pair.allow("source/a/run.sh", 0o755);
        fs::create_dir_all(pair.path("source/hollow/inner")).unwrap();
        pair
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Writes a file, with the directories above it.
    pub(crate) fn write(&self, path: &str, content: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), content).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.symlink_metadata().unwrap().is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    /// Moves `from` to `to` and replaces it, while a mirror may be at work there.
    pub(crate) fn replace(&self, from: &str, to: &str) {
        let (from, to, away) = (self.path(from), self.path(to), self.folder.path().join("replaced"));
        until("it is replaced", || {
            // The mirror may have removed or created it meanwhile.
            let _ = fs::rename(&to, &away);
            let _ = fs::remove_dir_all(&away).or_else(|_| fs::remove_file(&away));
            fs::rename(&from, &to).is_ok()
        });
    }

    pub(crate) fn link(&self, path: &str, to: &str) {
        symlink(to, self.path(path)).unwrap();
    }

    pub(crate) fn allow(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// Returns all entries below a directory. Entries that vanish meanwhile are left out.
    pub(crate) fn tree(&self, root: &str) -> Tree {
        let mut tree = Tree::new();
        walk(&self.path(root), Path::new(""), &mut tree);
        tree
    }

    pub(crate) fn is_equal(&self) -> bool {
        self.tree("source") == self.tree("target")
    }

    pub(crate) fn until_equal(&self) {
        until("both are equal", || self.is_equal());
    }

    fn command(&self, program: &Path, options: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(["--poll", "20ms", "--backoff", "10ms", "--backoff-cap", "40ms"]).args(options);
        command.arg(self.path("source")).arg(self.path("target")).env_remove("RUST_LOG");
        command
    }

    /// Starts a mirror with a short period.
    pub(crate) fn mirror(&self, options: &[&str]) -> Run {
        Run(Program::start(self.command(mirror(), options)))
    }

    /// Starts a mirror without the rights of root.
    pub(crate) fn mirror_unprivileged(&self, options: &[&str]) -> Run {
        if !rustix::process::geteuid().is_root() {
            return self.mirror(options);
        }
        fs::create_dir_all(self.path("target")).unwrap();
        self.allow("", 0o755);
        self.allow("target", 0o777);
        // The user `nobody` may have no access to the folder of the build, so it runs a copy.
        let program = self.path("mirror");
        fs::copy(mirror(), &program).unwrap();
        let mut command = self.command(&program, options);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        Run(Program::start(command))
    }
}

fn walk(root: &Path, folder: &Path, tree: &mut Tree) {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return };
    for entry in entries.filter_map(Result::ok) {
        let path = folder.join(entry.file_name());
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            tree.insert(path.clone(), (b"a directory".to_vec(), 0));
            walk(root, &path, tree);
        } else if metadata.is_symlink() {
            let to = fs::read_link(entry.path()).unwrap_or_default();
            tree.insert(path, (to.into_os_string().into_encoded_bytes(), 1));
        } else {
            let content = fs::read(entry.path()).unwrap_or_default();
            tree.insert(path, (content, metadata.permissions().mode()));
        }
    }
}

/// A running mirror.
pub(crate) struct Run(Program);

impl Deref for Run {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0
    }
}

impl DerefMut for Run {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.0
    }
}

impl Run {
    /// Waits for its end. Returns the exit code, and the last output.
    pub(crate) fn code(&mut self) -> (Option<i32>, String) {
        let code = self.ended().code();
        (code, self.unasked().last().copied().unwrap_or_default().to_owned())
    }
}

/// Runs a mirror to its end with only these arguments. Returns its exit code and standard error.
pub(crate) fn run_to_end(arguments: &[&Path]) -> (Option<i32>, String) {
    let output = Command::new(mirror()).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn mirror() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| example!("mirror"))
}
