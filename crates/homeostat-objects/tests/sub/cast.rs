//! `CastResource`: the cases of reconciler.io's `reconcilers/cast_test.go`. There, if a change does
//! not match the object's type, the object loses other fields.

use std::collections::BTreeMap;

use homeostat_objects::sub::{
    CastResource, Failures, Flow, Sequence, SubContext, SubReconciler, SubResult, WithFinalizer,
};
use homeostat_objects::{ClientError, DynamicObject, Kind, Object, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Thing, config, spy, step, things};
use crate::trail::{Returns, run_of, seconds, shown};

/// The type that a step uses to count pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Scaled {
    api_version: Option<String>,
    metadata: ObjectMeta,
    spec: Scale,
    #[serde(default)]
    paused: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Scale {
    replicas: u32,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Container {
    name: String,
}

/// The type that is cast. It has no field `paused`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct App {
    metadata: ObjectMeta,
    spec: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<Note>,
}

/// A note that cannot be read, or cannot be written.
#[derive(Clone, Debug, PartialEq)]
enum Note {
    Unreadable,
    Unwritable,
}

impl Serialize for Note {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unreadable => serializer.serialize_str("unreadable"),
            Self::Unwritable => Err(serde::ser::Error::custom("it must not be written")),
        }
    }
}

impl<'de> Deserialize<'de> for Note {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("it must not be read"))
    }
}

homeostat_objects::object!(App, namespaced, "example.com", "v1");

fn app() -> App {
    let containers = json!([{"name": "web", "image": "web:1"}, {"name": "log", "image": "log:1"}]);
    let spec =
        [("replicas".to_owned(), json!(2)), ("containers".to_owned(), containers), ("colour".to_owned(), json!("red"))];
    App { metadata: ObjectMeta::new("default", "shop"), spec: spec.into(), note: None }
}

fn cast<T, D>(step: fn(&mut D) -> SubResult) -> CastResource<T, D>
where
    D: 'static,
{
    CastResource::new(move |_: &SubContext<'_>, cast: &mut D| -> SubResult { step(cast) })
}

fn run(tried: &impl SubReconciler<App>, app: &mut App) -> String {
    let (config, _) = config(&spy());
    shown(&step(tried, &config, app))
}

fn invalid(tried: &impl SubReconciler<App>, app: &mut App) -> (String, String) {
    let (config, _) = config(&spy());
    let error = step(tried, &config, app).unwrap_err();
    let invalid = Failures::find::<ClientError>(&*error).unwrap();
    let [cause] = invalid.causes() else { panic!("{error}") };
    assert_eq!(invalid.object().to_string(), "App default/shop", "{error}");
    (cause.field.clone(), cause.value.clone())
}

fn on() -> SubResult {
    Ok(Flow::proceed())
}

fn pair(field: &str, value: &str) -> (String, String) {
    (field.to_owned(), value.to_owned())
}

#[test]
fn a_step_sees_the_fields_that_its_type_knows() {
    let mut seen = app();
    let looks = cast::<App, Scaled>(|scaled| {
        assert_eq!((scaled.metadata.name.as_str(), scaled.spec.replicas, scaled.paused), ("shop", 2, false));
        assert_eq!(scaled.spec.containers[1].name, "log");
        Ok(Flow::requeue_after(seconds(1)))
    });
    assert_eq!(run(&looks, &mut seen), "on, again in 1s");
    assert_eq!(seen, app());
    assert_eq!(run(&cast::<App, Scaled>(|_| Ok(Flow::halt())), &mut seen), "halted");
    assert_eq!(run(&cast::<App, Scaled>(|_| Err("out of luck".into())), &mut seen), "failed: out of luck");
}

#[test]
fn the_json_has_a_kind_even_if_the_type_does_not_write_it() {
    let looks = cast::<App, DynamicObject>(|any| {
        assert_eq!((any.api_version(), any.kind().name()), ("example.com/v1", "App"));
        any.fields_mut()["spec"]["replicas"] = json!(3);
        any.set_kind(&Kind::of("example.com/v1", "Other"));
        on()
    });
    let mut changed = app();
    assert_eq!(run(&looks, &mut changed), "on");
    assert_eq!(changed.spec["replicas"], 3);
    assert_eq!(serde_json::to_value(&changed).unwrap()["kind"], Value::Null);
}

#[test]
fn copies_changes_whatever_the_result_and_keeps_other_fields() {
    let change = |result: Returns| {
        CastResource::<App, Scaled>::new(move |_: &SubContext<'_>, scaled: &mut Scaled| -> SubResult {
            scaled.spec.replicas = 3;
            scaled.spec.containers.reverse();
            scaled.spec.containers.push(Container { name: "new".to_owned() });
            scaled.metadata.labels.insert("scaled".to_owned(), "yes".to_owned());
            scaled.paused = true; // a field that `App` does not have
            result()
        })
    };
    let mut expected = app();
    expected.metadata.labels.insert("scaled".to_owned(), "yes".to_owned());
    expected.spec.insert("replicas".to_owned(), json!(3));
    let containers = json!([{"name": "log", "image": "log:1"}, {"name": "web", "image": "web:1"}, {"name": "new"}]);
    expected.spec.insert("containers".to_owned(), containers);
    for (result, shown) in [
        (on as fn() -> SubResult, "on"),
        (|| Ok(Flow::halt()), "halted"),
        (|| Err("subreconciler error".into()), "failed: subreconciler error"),
    ] {
        let mut changed = app();
        assert_eq!((run(&change(result), &mut changed), &changed), (shown.to_owned(), &expected));
    }
}

#[test]
fn refuses_changes_of_a_read_only_cast() {
    let changes = |result: Returns| {
        CastResource::<App, Scaled>::new(move |_: &SubContext<'_>, scaled: &mut Scaled| -> SubResult {
            scaled.spec.containers[1].name = "other".to_owned();
            result()
        })
    };
    let mut same = app();
    assert_eq!(invalid(&changes(on).read_only(), &mut same), pair("/spec/containers/1/name", "other"));
    assert_eq!(
        run(&changes(|| Err("subreconciler error".into())).read_only(), &mut same),
        "failed: subreconciler error; App default/shop is invalid: /spec/containers/1/name is \"other\", but must not be changed \
         by a cast that is read only"
    );
    let asks = run(&changes(|| Ok(Flow::requeue_after(seconds(1)))).read_only(), &mut same);
    assert!(asks.ends_with("read only, again in 1s"), "{asks}");
    assert_eq!(same, app());
    assert_eq!(run(&cast::<App, Scaled>(|_| on()).read_only(), &mut same), "on");
}

#[test]
fn names_the_object_and_field_that_do_not_fit() {
    let never = || cast::<App, Scaled>(|_| unreachable!("not to be called"));
    let with = |field: &str, value: Value| {
        let mut app = app();
        app.spec.insert(field.to_owned(), value);
        app
    };
    assert_eq!(invalid(&never(), &mut with("replicas", json!("many"))), pair("/spec/replicas", "many"));
    let containers = json!([{"name": "web"}, {"name": 5}]);
    assert_eq!(invalid(&never(), &mut with("containers", containers)), pair("/spec/containers/1/name", "5"));
    let mut missing = app();
    missing.spec.remove("replicas");
    let (field, _) = invalid(&never(), &mut missing);
    assert_eq!(field, "/spec");
    let report = run(&never(), &mut missing);
    assert!(report.contains("cast::Scaled: missing field `replicas`"), "{report}");
}

#[test]
fn names_an_object_that_cannot_be_serialized() {
    let mut unwritable = App { note: Some(Note::Unwritable), ..app() };
    let report = run(&cast::<App, Scaled>(|_| unreachable!("not to be called")), &mut unwritable);
    assert!(report.starts_with("failed: App default/shop is invalid: must be written as JSON"), "{report}");
    assert!(report.ends_with("it must not be written"), "{report}");
}

/// If the result of the step is not JSON or does not match the type, the object is not changed.
#[test]
fn a_change_that_does_not_fit_leaves_the_object_as_it_was() {
    #[derive(Clone, Serialize, Deserialize)]
    struct Noted {
        metadata: ObjectMeta,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<Note>,
    }
    let notes = |note: Note| {
        CastResource::<App, Noted>::new(move |_: &SubContext<'_>, noted: &mut Noted| -> SubResult {
            noted.metadata.labels.insert("noted".to_owned(), "yes".to_owned());
            noted.note = Some(note.clone());
            Err("subreconciler error".into())
        })
    };
    for (note, field, why) in
        [(Note::Unwritable, "", "it must not be written"), (Note::Unreadable, "/note", "it must not be read")]
    {
        let mut same = app();
        assert_eq!(invalid(&notes(note.clone()), &mut same).0, field);
        let report = run(&notes(note), &mut same);
        assert!(report.starts_with("failed: subreconciler error; App default/shop is invalid"), "{report}");
        assert!(report.ends_with(why), "{report}");
        assert_eq!(same, app());
    }
}

#[test]
fn a_nested_cast_changes_the_object() {
    #[derive(Clone, Serialize, Deserialize)]
    struct Counted {
        replicas: u32,
    }
    #[derive(Clone, Serialize, Deserialize)]
    struct Inner {
        spec: Counted,
    }
    let inner = cast::<Scaled, Inner>(|inner| {
        inner.spec.replicas += 1;
        on()
    });
    let any = cast::<Scaled, DynamicObject>(|any| {
        assert_eq!((any.kind().name(), &any.fields()["spec"]["replicas"]), ("App", &json!(3)));
        any.meta_mut().annotations.insert("seen".to_owned(), "yes".to_owned());
        Ok(Flow::requeue_after(seconds(2)))
    });
    let steps = CastResource::<App, Scaled>::new(Sequence::new().then(inner).then(any));
    let mut changed = app();
    assert_eq!(run(&steps, &mut changed), "on, again in 2s");
    let mut expected = app();
    expected.spec.insert("replicas".to_owned(), json!(3));
    expected.metadata.annotations.insert("seen".to_owned(), "yes".to_owned());
    assert_eq!(changed, expected);

    let mut same = app();
    let within = CastResource::<App, Scaled>::new(
        cast::<Scaled, Inner>(|inner| {
            inner.spec.replicas = 9;
            on()
        })
        .read_only(),
    );
    assert_eq!(invalid(&within, &mut same), pair("/spec/replicas", "9"));
    assert_eq!(same, app());
}

#[test]
fn writes_a_status_set_through_a_cast() {
    let step = cast::<Thing, DynamicObject>(|any| {
        any.fields_mut()["status"]["fields"] = json!({"trail": "cast"});
        on()
    });
    assert_eq!(run_of(&step, &mut Thing::new("web")), ("cast".to_owned(), "on".to_owned()));
}

#[test]
fn keeps_a_finalizer_written_through_a_cast() {
    let spy = spy();
    let (config, _) = config(&spy);
    let mut thing = things(&spy).create(&Thing::new("web")).unwrap();
    let holds = WithFinalizer::new("example.com/f", |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { on() });
    assert_eq!(shown(&step(&CastResource::<Thing, DynamicObject>::new(holds), &config, &mut thing)), "on");
    assert_eq!(thing.metadata.finalizers, ["example.com/f"]);
    assert_eq!(thing, things(&spy).get(Thing::reference().key()).unwrap());
}

#[test]
fn a_read_only_cast_allows_finalizers() {
    let spy = spy();
    let (config, _) = config(&spy);
    let mut thing = things(&spy).create(&Thing::new("web")).unwrap();
    let holds = WithFinalizer::new("example.com/f", |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { on() });
    assert_eq!(shown(&step(&CastResource::<Thing, DynamicObject>::new(holds).read_only(), &config, &mut thing)), "on");
    assert_eq!(thing, things(&spy).get(Thing::reference().key()).unwrap());
}
