//! Prometheus scrapes `/metrics` with a token, and `promtool` reads it.

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use homeostat::{Action, BoxError, Context, Controller, Manager};
use homeostat_serve::{Server, StatusPages, UserInfo};
use homeostat_test_support::installed::client;
use homeostat_test_support::system::free_port;

use super::succeeds;
use crate::until::until;

struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn promtool(arguments: &[&str]) -> Command {
    let mut command = Command::new(client("unstable", "bin/promtool"));
    command.args(arguments);
    command
}

#[test]
fn prometheus_scrapes_with_a_token_and_its_queries_find_the_runs() {
    let manager = Manager::builder().name("scraped").build().unwrap();
    let reconcile = |_cx: &Context, _key: &String| Ok::<_, BoxError>(Action::await_change());
    let controller = Controller::builder("scraped", reconcile).build().unwrap();
    let handle = controller.handle();
    manager.add(controller).unwrap();
    let _running = manager.start().unwrap();
    for key in ["one", "two", "three"] {
        handle.enqueue(key.to_owned());
        handle.wait(&key.to_owned(), Duration::MAX).unwrap();
    }
    let pages = StatusPages::new(&manager).unwrap();
    let server =
        Server::builder((Ipv4Addr::LOCALHOST, 0)).status_pages(pages).token("sesame", UserInfo::new("scraper"));
    let server = server.build().unwrap().start().unwrap();
    let target = server.addresses()[0].to_string();

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prometheus.yaml");
    let job = |name: &str, token: &str| {
        format!(
            "- job_name: {name}\n  authorization: {{credentials: {token}}}\n  static_configs: [{{targets: ['{target}']}}]\n"
        )
    };
    let jobs = job("app", "sesame") + &job("stranger", "wrong");
    std::fs::write(&file, format!("global: {{scrape_interval: 1s}}\nscrape_configs:\n{jobs}")).unwrap();
    succeeds(promtool(&["check", "config"]).arg(&file));
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(client("unstable", "bin/prometheus"));
    command.arg(format!("--config.file={}", file.display())).arg(format!("--web.listen-address={address}"));
    command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
    let _prometheus = Started(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let finds = |query: &str, expected: &str| {
        until(&format!("{query} is {expected}"), || {
            let output = promtool(&["query", "instant", &format!("http://{address}"), query]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains(&format!("=> {expected} @"))
        });
    };
    finds("up{job='app'}", "1");
    finds("up{job='stranger'}", "0");
    finds("sum(controller_runtime_reconcile_total{controller='scraped', result='success', job='app'})", "3");
    finds("workqueue_adds_total{name='scraped', job='app'}", "3");
    finds("histogram_quantile(1, workqueue_queue_duration_seconds_bucket{job='app'}) >= bool 0", "1");

    // The counter has the name that Kubernetes has given it.
    let expected = "authentication_attempts counter metrics should have \"_total\" suffix\n";
    let text = crate::status::metrics_of(&manager);
    let mut check = promtool(&["check", "metrics"]);
    let mut check = check.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(complaints, expected);
}
