//! A program with invented work, to be looked at with a browser: `.ci/status-pictures` takes its pictures.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::get;
use crate::base::wait::Latch;
use crate::serve::http::{Handler, ReplyBody};
use crate::serve::page::StatusPages;
use crate::{
    Action, BoxError, Component, Context, Controller, Enqueue, Exponential, FileElector, Manager, Poller, Priority,
    terminal,
};

const ERRORS: [&str; 3] = [
    "the image registry answers 503: upstream connect error or disconnect/reset before headers. reset reason: connection \
     failure, transport failure reason: delayed connect error: 111",
    "conflict: its version is 8812, not 8809",
    "spec.cores is \"two\", but must be a number",
];

/// Runs a key for some milliseconds, by its number. Some keys fail.
fn work(cx: &Context, key: &str, least: u64, most: u64) -> Result<Action, BoxError> {
    let number = key.bytes().fold(cx.clock().nanos().0 >> 20, |number, byte| number.wrapping_mul(31) ^ u64::from(byte));
    cx.sleep(Duration::from_millis(least + number % (most - least)))?;
    match key {
        // It ignores its deadline.
        "prod/stuck" => {
            Latch::new(cx.clock().clone()).wait_for(Duration::from_secs(600));
            Ok(Action::await_change())
        }
        "default/db-7" => Err(ERRORS[0].into()),
        "prod/cache" => Err(ERRORS[1].into()),
        "default/<b>x</b>" => Err(terminal(ERRORS[2]).into()),
        _ if number.is_multiple_of(23) => Err(ERRORS[1].into()),
        _ if number.is_multiple_of(7) => Ok(Action::requeue_after(Duration::from_secs(20))),
        _ => Ok(Action::await_change()),
    }
}

fn program() -> Manager {
    let lock = std::env::temp_dir().join(format!("appliance-{}.lock", std::process::id()));
    let manager = Manager::builder().name("appliance").threads(6).elector(FileElector::new(lock).name("box-3"));
    let manager = manager.shutdown_grace(Duration::from_millis(100)).build().unwrap();
    let vm = Controller::builder("vm", |cx: &Context, key: &String| work(cx, key, 20, 900))
        .max_concurrent_reconciles(4)
        .reconcile_timeout(Duration::from_secs(5))
        .retry(Exponential::new(Duration::from_secs(2), Duration::from_secs(60)))
        .poller(Poller::new(Duration::from_secs(5), |_cx: &Context| Ok::<_, BoxError>(Vec::new())).name("vms"))
        .build()
        .unwrap();
    let disk = Controller::builder("disk", |cx: &Context, key: &String| work(cx, key, 2, 40))
        .max_concurrent_reconciles(4)
        .poller(Poller::new(Duration::from_secs(3), |_cx: &Context| Ok::<_, BoxError>(Vec::new())).name("disks"))
        .build()
        .unwrap();
    let link =
        |_cx: &Context| Err::<Vec<String>, _>("ip: exit status 1: Cannot open netlink socket: Operation not permitted");
    let network = Controller::builder("network", |cx: &Context, key: &String| work(cx, key, 2, 40))
        .max_concurrent_reconciles(2)
        .sync_timeout(Duration::from_secs(3600))
        .poller(Poller::new(Duration::from_secs(5), link).name("links"))
        .build()
        .unwrap();
    let zone = Controller::builder("zone", |cx: &Context, key: &String| work(cx, key, 2, 40)).build().unwrap();
    let (vms, disks, networks, zones) = (vm.handle(), disk.handle(), network.handle(), zone.handle());
    for controller in [vm, disk, network, zone] {
        manager.add(controller).unwrap();
    }
    zones.suspend_all();
    let load = move |cx: &Context| -> Result<(), BoxError> {
        let mut round = 0_u64;
        loop {
            let random = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            disks.enqueue(format!("pool-a/disk-{}", random % 5000));
            if round % 4 < 1 + random % 2 {
                vms.enqueue(format!("default/web-{}", random % 40));
            }
            if round.is_multiple_of(160) {
                let batch = vms.queue().at(Priority::Low);
                for number in 0..random % 60 {
                    batch.enqueue(format!("batch/job-{number}"));
                }
            }
            if round == 5 {
                for key in ["default/db-7", "prod/cache", "default/<b>x</b>"] {
                    vms.enqueue(key.to_owned());
                }
                networks.enqueue("eth0".to_owned());
            }
            if round == 100 {
                vms.enqueue("prod/stuck".to_owned());
            }
            round += 1;
            cx.sleep(Duration::from_millis(120 + random % 90))?;
        }
    };
    manager.add(Component::function("load", load)).unwrap();
    manager
}

/// Answers one request. Returns false for the path `/stop`.
fn answer(pages: &StatusPages, mut stream: TcpStream) -> std::io::Result<bool> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let target = first.split(' ').nth(1).unwrap_or("/");
    if target == "/stop" {
        return Ok(false);
    }
    let reply = pages.handle(&get(target));
    let ReplyBody::Full(body) = reply.body else { return Ok(true) };
    write!(stream, "HTTP/1.1 {}\r\nContent-Length: {}\r\nConnection: close\r\n", reply.status, body.len())?;
    for (name, value) in &reply.headers {
        write!(stream, "{name}: {}\r\n", value.to_str().unwrap())?;
    }
    stream.write_all(b"\r\n")?;
    stream.write_all(&body)?;
    Ok(true)
}

/// Serves the pages until `/stop` is requested, at the address in `HOMEOSTAT_STATUS_ADDRESS`. Does nothing without it.
#[test]
fn a_browser_can_look_at_the_pages() {
    let Ok(address) = std::env::var("HOMEOSTAT_STATUS_ADDRESS") else { return };
    let listener = TcpListener::bind(address).unwrap();
    let manager = program();
    let pages = StatusPages::new(&manager).unwrap();
    let running = manager.start().unwrap();
    // A browser breaks off connections.
    while listener.accept().and_then(|(stream, _)| answer(&pages, stream)).unwrap_or(true) {}
    running.shutdown(Duration::from_millis(100));
}
