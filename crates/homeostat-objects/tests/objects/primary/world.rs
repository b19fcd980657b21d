//! Sites, which make pages and read themes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use homeostat::{Action, BoxError, Context, ControllerHandle, Exponential, Manager, ManualClock, Running};
use homeostat_objects::{
    Api, ClientError, EventRecorder, Ignore, MemoryClient, Object, ObjectKey, ObjectMeta, PrimaryContext,
    PrimaryController, PrimaryReconciler, Query, Secondary,
};
use parking_lot::Mutex;

use crate::hooked_client::HookedClient;
use crate::waits::until;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const RESYNC: Duration = Duration::from_secs(600);
/// A second less than the resync.
pub(crate) const ALMOST: Duration = Duration::from_secs(599);
pub(crate) const FINALIZER: &str = "example.com/hold";

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Site {
    pub(crate) metadata: ObjectMeta,
    /// The texts by page.
    pub(crate) pages: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) theme: String,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Page {
    pub(crate) metadata: ObjectMeta,
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Theme {
    pub(crate) metadata: ObjectMeta,
    pub(crate) colour: String,
    /// The sites that use it.
    pub(crate) sites: Vec<String>,
}

homeostat_objects::object!(Site, namespaced, "example.com", "v1");
homeostat_objects::object!(Page, namespaced, "example.com", "v1", kind: "Page", status: u32);
homeostat_objects::object!(Theme, namespaced, "example.com", "v1");

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

pub(crate) fn page_key(name: &str) -> ObjectKey {
    ObjectKey::new("pages", name)
}

pub(crate) fn site(name: &str, pages: &[(&str, &str)]) -> Site {
    let pages = pages.iter().map(|(page, text)| ((*page).to_owned(), (*text).to_owned())).collect();
    Site { metadata: ObjectMeta::new("default", name), pages, theme: String::new() }
}

pub(crate) fn page(name: &str, text: &str) -> Page {
    Page { metadata: ObjectMeta::new("pages", name), text: text.to_owned(), status: None }
}

pub(crate) fn theme(name: &str, colour: &str, sites: &[&str]) -> Theme {
    let sites = sites.iter().map(|site| (*site).to_owned()).collect();
    Theme { metadata: ObjectMeta::new("default", name), colour: colour.to_owned(), sites }
}

/// The clients: sites in one, pages in the same or in another.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) of_sites: Arc<HookedClient>,
    pub(crate) of_pages: Arc<HookedClient>,
    pub(crate) events: MemoryClient,
    recorder: EventRecorder,
    /// The calls, such as `put a` and `gone delete a`.
    pub(crate) calls: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub(crate) fn new(clients: usize) -> Self {
        let clock = ManualClock::new();
        let client = || HookedClient::new(MemoryClient::builder().clock(clock.clock()).build());
        let of_sites = client();
        let of_pages = if clients == 1 { of_sites.clone() } else { client() };
        let events = MemoryClient::new();
        let recorder = EventRecorder::builder("sites").client(Arc::new(events.clone())).clock(clock.clock()).build();
        Self { of_sites, of_pages, events, recorder, calls: Arc::default(), clock: clock.clone() }
    }

    /// Worlds with one client and with two.
    pub(crate) fn both() -> [Self; 2] {
        [Self::new(1), Self::new(2)]
    }

    pub(crate) fn sites(&self) -> Api<Site> {
        Api::new(self.of_sites.clone())
    }

    /// The pages, through the hook.
    pub(crate) fn pages(&self) -> Secondary<Page> {
        Secondary::new(Api::new(self.of_pages.clone())).recorder(self.recorder())
    }

    /// The pages, bypassing the hook.
    pub(crate) fn bare_pages(&self) -> Api<Page> {
        Api::new(Arc::clone(self.of_pages.inner(&Page::KIND).client()))
    }

    pub(crate) fn themes(&self) -> Api<Theme> {
        Api::new(Arc::clone(self.of_sites.inner(&Theme::KIND).client()))
    }

    pub(crate) fn recorder(&self) -> EventRecorder {
        self.recorder.clone()
    }

    /// The events of a site, sorted.
    pub(crate) fn recorded(&self, name: &str) -> Vec<String> {
        use homeostat_objects::{Client, SharedObject};
        self.recorder.flush();
        let events = self.events.list(&EventRecorder::KIND, &Query::all()).unwrap().items;
        let events: Vec<_> = events.iter().map(SharedObject::to_value).collect();
        let of_site = events.iter().filter(|event| event["regarding"]["name"] == name);
        let text = |event: &serde_json::Value, field: &str| event[field].as_str().unwrap().to_owned();
        let mut texts: Vec<_> =
            of_site.map(|event| ["type", "reason", "note"].map(|field| text(event, field)).join(" ")).collect();
        texts.sort();
        texts
    }

    /// The texts of all pages by name.
    pub(crate) fn texts(&self) -> BTreeMap<String, String> {
        let pages = self.bare_pages().list(&Query::all()).unwrap().items;
        pages.into_iter().map(|page| (page.metadata.name, page.text)).collect()
    }

    /// Waits until exactly these pages exist.
    #[track_caller]
    pub(crate) fn until_pages(&self, pages: &[(&str, &str)]) {
        let wanted: BTreeMap<_, _> =
            pages.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        until!(if self.texts() == wanted { Ok(()) } else { Err(format!("{:?}, not {wanted:?}", self.texts())) });
    }

    /// Waits until each of the sites has run for an event about its page.
    #[track_caller]
    pub(crate) fn until_echoed(&self, started: &Started, sites: &[&str]) {
        for name in sites {
            let echo = format!("secondary {name}");
            until!(if self.calls.lock().contains(&echo) { Ok(()) } else { Err(self.calls.lock().join(", ")) });
            started.handle.wait(&key(name), SECOND).unwrap();
        }
        self.forget();
    }

    /// Waits for this call, and takes the calls so far.
    #[track_caller]
    pub(crate) fn until_called(&self, call: &str) -> Vec<String> {
        until!({
            if self.calls.lock().iter().any(|known| known == call) { Ok(()) } else { Err(self.calls.lock().join(", ")) }
        });
        self.forget()
    }

    pub(crate) fn forget(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock())
    }

    pub(crate) fn controller(&self) -> PrimaryController<Site> {
        let pages = self.pages();
        let of_pages = pages.clone();
        let sync = Sync { calls: Arc::clone(&self.calls), pages, themes: self.themes() };
        PrimaryController::new("sites", self.sites(), sync)
            .secondary(&of_pages)
            .tertiary(self.themes(), |theme| theme.sites.iter().map(|site| key(site)).collect::<Vec<_>>())
            .retry(Exponential::new(SECOND, 60 * SECOND).jitter(0.0))
            .resync(RESYNC)
    }

    pub(crate) fn start(&self, settings: impl FnOnce(PrimaryController<Site>) -> PrimaryController<Site>) -> Started {
        let manager = Manager::builder().clock(self.clock.clock()).build().unwrap();
        let handle = settings(self.controller()).add_to(&manager).unwrap();
        let running = manager.start().unwrap();
        until!(if handle.has_synced() { Ok(()) } else { Err("the first listings have not completed".to_owned()) });
        Started { handle, manager, running }
    }
}

pub(crate) struct Started {
    pub(crate) handle: ControllerHandle<ObjectKey>,
    pub(crate) manager: Manager,
    running: Running<Manager>,
}

impl Started {
    /// Waits until the last run of this key has failed and a retry is scheduled. Returns the error.
    #[track_caller]
    pub(crate) fn failing(&self, name: &str) -> String {
        let mut found = None;
        until!({
            found = self.handle.failing().into_iter().find(|failed| failed.key == key(name));
            if found.is_some() && self.handle.queue().metrics().delayed > 0 {
                Ok(())
            } else {
                Err("it does not fail".to_owned())
            }
        });
        found.unwrap().error.clone()
    }

    pub(crate) fn stop(self) {
        self.manager.stop();
        self.running.join().unwrap();
    }
}

/// Makes the pages of a site, in the colour of its theme.
struct Sync {
    calls: Arc<Mutex<Vec<String>>>,
    pages: Secondary<Page>,
    themes: Api<Theme>,
}

impl PrimaryReconciler<Site> for Sync {
    fn sync(&self, cx: &PrimaryContext<'_>, site: &Site) -> Result<Action, BoxError> {
        self.calls.lock().push(format!("{} {}", cx.operation(), site.metadata.name));
        if site.metadata.is_deleting() {
            return Ok(Action::await_change());
        }
        make(cx, &self.pages, &self.themes, site)?;
        Ok(Action::await_change())
    }

    fn gone(&self, cx: &PrimaryContext<'_>, key: &ObjectKey) -> Result<(), BoxError> {
        self.calls.lock().push(format!("gone {} {}", cx.operation(), key.name()));
        Ok(())
    }
}

/// Returns the context of a run outside of a controller.
pub(crate) fn cx() -> Context {
    Context::detached()
}

fn make(cx: &Context, pages: &Secondary<Page>, themes: &Api<Theme>, site: &Site) -> Result<(), ClientError> {
    let theme = themes.get(&key(&site.theme)).ignore_not_found()?;
    let colour = theme.map_or_else(String::new, |theme| format!(" in {}", theme.colour));
    let mut keep = BTreeSet::new();
    for (name, text) in &site.pages {
        let page = page(&format!("{}-{name}", site.metadata.name), &format!("{text}{colour}"));
        keep.insert(page.key());
        pages.ensure(cx, site, page)?;
    }
    pages.prune(cx, site, keep)?;
    Ok(())
}
