//! Sites in a file, their pages in memory, and published files in a folder: a primary, its secondaries and an external
//! resource.
//!
//! ```sh
//! cargo run --features file-client --example sites
//! ```
//!
//! It makes a few changes, prints the results, and ends. Run it again: the sites are still in the file, and it
//! continues with them. With `--for 60s` it runs for another minute, or until Ctrl-C. In that time, delete or edit the
//! published files: the program restores them.
//!
//! | part | here |
//! |---|---|
//! | primary | [`Site`], in a file |
//! | secondary | [`Page`], in memory: one for each page of a site, marked with its site |
//! | external | [`Folder`]: the published files, checked after each run and once a second |

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

#[expect(dead_code, reason = "the other examples need the rest")]
#[path = "cli/mod.rs"]
mod cli;
#[path = "cli/ending.rs"]
mod ending;
#[path = "cli/exit.rs"]
mod exit;
#[path = "cli/interrupt.rs"]
mod interrupt;
#[path = "cli/paths.rs"]
mod paths;
#[path = "cli/recorded.rs"]
mod recorded;
#[path = "cli/until.rs"]
mod until;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use homeostat::{Action, BoxError, Context, ControllerHandle, Manager};
use homeostat_objects::{
    Api, DeleteOptions, EventRecorder, External, FileClient, Ignore, MemoryClient, Object, ObjectKey, ObjectMeta,
    OperationResult, PrimaryContext, PrimaryController, PrimaryReconciler, Query, Secondary,
};
use serde::{Deserialize, Serialize};

use crate::ending::stop_after;
use crate::paths::at;
use crate::until::until;

const SECOND: Duration = Duration::from_secs(1);

/// Keeps sites in a file, their pages in memory, and publishes them in a folder.
#[derive(Parser)]
#[command(name = "sites", version)]
struct Arguments {
    /// The file with the sites; a folder `public` beside it gets the published files [default: in the system's folder
    /// for temporary files]
    file: Option<PathBuf>,
    /// Continue for this long after the last step: `60s`
    #[arg(long = "for", value_parser = cli::parse_duration, default_value = "0s", value_name = "DURATION")]
    stay: Duration,
}

/// The desired texts by page.
#[derive(Clone, Serialize, Deserialize)]
struct Site {
    metadata: ObjectMeta,
    pages: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<SiteStatus>,
}

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
struct SiteStatus {
    published: usize,
}

#[derive(Clone, Serialize, Deserialize)]
struct Page {
    metadata: ObjectMeta,
    text: String,
}

homeostat_objects::object!(Site, namespaced, "example.com", "v1", kind: "Site", status: SiteStatus);
homeostat_objects::object!(Page, namespaced, "example.com", "v1");

fn site_key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// Makes the pages of a site, and writes their number into its status.
struct Publish {
    sites: Api<Site>,
    pages: Secondary<Page>,
}

impl PrimaryReconciler<Site> for Publish {
    fn sync(&self, cx: &PrimaryContext<'_>, site: &Site) -> Result<Action, BoxError> {
        let name = &site.metadata.name;
        let mut keep = Vec::new();
        for (page, text) in &site.pages {
            let metadata = ObjectMeta::new("pages", format!("{name}-{page}"));
            let ensured = self.pages.ensure(cx, site, Page { metadata, text: text.clone() })?;
            match &ensured {
                OperationResult::Created(_) => println!("  {name}: page {page} was created ({})", cx.operation()),
                OperationResult::Updated(_) => println!("  {name}: page {page} was restored ({})", cx.operation()),
                OperationResult::Unchanged(_) => {}
            }
            keep.push(ensured.object().key());
        }
        for page in self.pages.prune(cx, site, keep)? {
            println!("  {name}: page {} is no longer desired ({})", page.name(), cx.operation());
        }
        let status = Some(SiteStatus { published: site.pages.len() });
        if site.status != status {
            self.sites.update_status(&Site { status, ..site.clone() })?;
        }
        Ok(Action::await_change())
    }

    fn gone(&self, cx: &PrimaryContext<'_>, key: &ObjectKey) -> Result<(), BoxError> {
        println!("  {}: gone, with everything that belonged to it ({})", key.name(), cx.operation());
        Ok(())
    }
}

/// The folder of published sites. Each site is a folder, each page a file.
struct Folder(PathBuf);

impl Folder {
    fn of(&self, site: &ObjectKey) -> PathBuf {
        self.0.join(site.name())
    }

    /// Returns the files of a site by name.
    fn files(&self, site: &ObjectKey) -> Result<BTreeMap<String, String>, BoxError> {
        let folder = self.of(site);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => at(&folder, entries)?,
        };
        entries
            .map(|entry| {
                let path = at(&folder, entry)?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Ok((name, at(&path, fs::read_to_string(&path))?))
            })
            .collect()
    }
}

fn wanted_files(site: &Site) -> BTreeMap<String, String> {
    site.pages.iter().map(|(page, text)| (format!("{page}.txt"), format!("{text}\n"))).collect()
}

impl External<Site> for Folder {
    fn observe(&self, _cx: &Context, site: &Site) -> Result<bool, BoxError> {
        Ok(self.files(&site.key())? == wanted_files(site))
    }

    fn converge(&self, _cx: &Context, site: &Site) -> Result<(), BoxError> {
        let (folder, wanted) = (self.of(&site.key()), wanted_files(site));
        at(&folder, fs::create_dir_all(&folder))?;
        for file in self.files(&site.key())?.keys().filter(|file| !wanted.contains_key(*file)) {
            let path = folder.join(file);
            at(&path, fs::remove_file(&path))?;
        }
        for (file, text) in &wanted {
            let path = folder.join(file);
            at(&path, fs::write(&path, text))?;
        }
        println!("  {}: {} files are published", site.metadata.name, wanted.len());
        Ok(())
    }

    fn list(&self, _cx: &Context) -> Result<Vec<ObjectKey>, BoxError> {
        let folders = at(&self.0, fs::read_dir(&self.0))?;
        folders.map(|folder| Ok(site_key(&at(&self.0, folder)?.file_name().to_string_lossy()))).collect()
    }

    fn remove(&self, _cx: &Context, owner: &ObjectKey) -> Result<bool, BoxError> {
        let folder = self.of(owner);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            removed => at(&folder, removed.map(|()| true)),
        }
    }
}

/// The steps of the program. After each one, it waits for the result.
struct Tour<'a> {
    sites: &'a Api<Site>,
    pages: &'a Api<Page>,
    controller: &'a ControllerHandle<ObjectKey>,
    folder: &'a Path,
    cx: Context,
}

impl Tour<'_> {
    fn go(&self) -> Result<(), BoxError> {
        let garden = site_key("garden");
        let known = self.sites.get(&garden).ignore_not_found()?;
        let visits = known.as_ref().map_or(0, |site| site.pages.len()) + 1;
        println!("Visit number {visits}.");
        let mut site = known.unwrap_or_else(|| Site {
            metadata: ObjectMeta::new("default", "garden"),
            pages: BTreeMap::new(),
            status: None,
        });
        site.pages.insert(format!("visit-{visits}"), format!("Visit number {visits}"));
        if visits == 1 {
            self.sites.create(&site)?
        } else {
            self.sites.update(&site)?
        };
        self.settled(&garden)?;

        println!("The tour deletes a page of the garden. The controller creates it again.");
        let page = ObjectKey::new("pages", &format!("garden-visit-{visits}"));
        let deleted = self.pages.get(&page)?;
        self.pages.delete(&page, &DeleteOptions::default())?;
        until(&self.cx, || {
            Ok(self.pages.get(&page).ignore_not_found()?.is_some_and(|now| now.metadata.uid != deleted.metadata.uid))
        })?;

        println!(
            "The tour overwrites a published file. No event reports that, but the folder is checked every second."
        );
        let file = self.folder.join("garden").join(format!("visit-{visits}.txt"));
        let text = at(&file, fs::read_to_string(&file))?;
        at(&file, fs::write(&file, "weeds"))?;
        until(&self.cx, || Ok(at(&file, fs::read_to_string(&file))? == text))?;

        println!("The tour creates the site shed, and deletes it.");
        let pages = [("tools".to_owned(), "A spade".to_owned())].into();
        self.sites.create(&Site { metadata: ObjectMeta::new("default", "shed"), pages, status: None })?;
        let shed = site_key("shed");
        self.settled(&shed)?;
        self.sites.delete(&shed, &DeleteOptions::default())?;
        let published = self.folder.join("shed");
        until(&self.cx, || {
            Ok(!published.exists()
                && self.pages.list(&Query::all())?.items.iter().all(|page| !page.metadata.name.starts_with("shed")))
        })
    }

    /// Waits until the controller has reconciled this site.
    fn settled(&self, site: &ObjectKey) -> Result<(), BoxError> {
        self.controller.enqueue(site.clone());
        self.controller.wait(site, 30 * SECOND)?;
        Ok(())
    }
}

fn main() -> ExitCode {
    exit::exit_code(run(Arguments::parse()))
}

fn run(Arguments { file, stay }: Arguments) -> Result<(), BoxError> {
    let file = file.unwrap_or_else(|| std::env::temp_dir().join("homeostat-sites").join("sites.redb"));
    let folder = file.with_file_name("public");
    if let Some(parent) = file.parent() {
        at(parent, fs::create_dir_all(parent))?;
    }
    let client = FileClient::open(&file)?;
    let sites = Api::<Site>::new(Arc::new(client));
    at(&folder, fs::create_dir_all(&folder))?;
    println!("Sites are in {}, and published in {}.", file.display(), folder.display());

    let memory = Arc::new(MemoryClient::new());
    let recorder = EventRecorder::builder("sites").client(memory.clone()).build();
    let pages = Secondary::new(Api::<Page>::new(memory.clone())).recorder(recorder.clone());
    let manager = Manager::builder().build()?;
    let publish = Publish { sites: sites.clone(), pages: pages.clone() };
    let controller = PrimaryController::new("sites", sites.clone(), publish)
        .secondary(&pages)
        .external("the folder", Folder(folder.clone()))
        .recorder(recorder.clone())
        .resync(SECOND)
        .clean_up(|| println!("All has ended."))
        .add_to(&manager)?;
    let running = manager.start()?;

    let cx = Context::detached();
    let tour = Tour { sites: &sites, pages: pages.api(), controller: &controller, folder: &folder, cx };
    stop_after(tour.go(), stay, &manager, running)?;

    recorder.flush();
    recorded::print_events(&*memory)?;
    // No controller runs, so no event reports this object. The next start of the program finds it.
    let attic = folder.join("attic");
    at(&attic, fs::create_dir_all(&attic))?;
    println!(
        "The folder attic remains, but belongs to no site. Run this again with the same file: the controller removes it."
    );
    Ok(())
}
