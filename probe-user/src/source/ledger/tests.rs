//! A small API server with Calico's objects, and what is asked there.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Asked, Asker, CALICO, Unanswered, links_at_start};
use crate::{
    api_server::{ApiServer, access::Access, rest::Rest, stats::KubernetesStats},
    model::{
        change::Question,
        fact::{Fact, Holder, StoreAnswer, StoreLink},
        id::ContainerId,
    },
    source::task::channel::{Batch, QuestionSender, feed, questions},
};

/// What the server answers at a path: a status, a header and a body. None: it waits.
type Answers = BTreeMap<String, Option<(&'static str, &'static str, Vec<u8>)>>;

struct Server {
    answers: Answers,
    /// The paths of the requests.
    asked: Arc<Mutex<Vec<String>>>,
}

struct Running {
    asker: Asker,
    /// Another who asks the same API server.
    other: ApiServer,
    asks: QuestionSender,
    batches: mpsc::Receiver<Batch>,
    asked: Arc<Mutex<Vec<String>>>,
}

fn sandbox(digit: &str) -> ContainerId {
    ContainerId::parse(&digit.repeat(64)).expect("an id")
}

fn handle(id: &str) -> String {
    format!("/ipamhandles/{id}")
}

fn own() -> String {
    handle(&format!("k8s-pod-network.{}", sandbox("a")))
}

/// A block of four addresses: the second one has this handle.
fn block(id: &str) -> Value {
    json!({ "spec": {
        "cidr": "10.9.0.0/30",
        "affinity": "host:node-a",
        "allocations": [0, 1, null, 2],
        "unallocated": [2],
        "attributes": [
            { "handle_id": "vxlan-tunnel-addr-node-a", "secondary": { "type": "vxlanTunnelAddress" } },
            { "handle_id": id, "secondary": { "pod": "cart-0", "namespace": "shop", "node": "node-a" } },
            { "handle_id": "k8s-pod-network.vmi.shop.vm-1" },
        ],
        "sequenceNumber": 7,
        "deleted": false,
        "strictAffinity": false,
    }})
}

impl Server {
    /// The API server of a cluster whose Calico has its objects in this group.
    fn new(group: &str) -> Self {
        let groups = json!({ "groups": [{ "name": "apps" }, { "name": group }] });
        let mut server = Self { answers: Answers::new(), asked: Arc::default() };
        server.found("/apis", &groups);
        server
    }

    /// Sandbox `a` has 10.9.0.1.
    fn held() -> Self {
        let mut server = Self::new("crd.projectcalico.org");
        let id = format!("k8s-pod-network.{}", sandbox("a"));
        server.found(&own(), &json!({ "spec": { "handleID": id, "block": { "10.9.0.0/30": 1 } } }));
        server.found("/ipamblocks/10-9-0-0-30", &block(&id));
        server
    }

    fn found(&mut self, path: &str, object: &Value) {
        self.says(path, "200 OK", "", object.to_string().into_bytes());
    }

    fn says(&mut self, path: &str, status: &'static str, header: &'static str, body: Vec<u8>) {
        self.answers.insert(path.to_owned(), Some((status, header, body)));
    }

    fn refuses(&mut self, path: &str) {
        let why = json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": "no", "status": "Failure" });
        self.says(path, "403 Forbidden", "", why.to_string().into_bytes());
    }

    fn start(self) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let Self { answers, asked } = self;
        let told = Arc::clone(&asked);
        // The thread ends with the tests.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answers, told) = (answers.clone(), Arc::clone(&told));
                thread::spawn(move || serve(&stream.expect("a client"), &answers, &told));
            }
        });
        let url = format!("http://{address}").parse().expect("a URL");
        let (access, rest, stats) = (Access::new(url), Rest::default(), Arc::new(KubernetesStats::default()));
        let other = ApiServer::new(access.clone(), rest.clone(), Arc::clone(&stats));
        let server = ApiServer::new(access, rest, stats);
        let (feed, batches) = feed();
        let (asks, questions) = questions();
        Running { asker: Asker::new(&CALICO, server, feed, questions), other, asks, batches, asked }
    }
}

fn serve(stream: &TcpStream, answers: &Answers, told: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a request");
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {}
    told.lock().expect("no panic").push(path.clone());
    let found =
        answers.iter().find(|(own, _)| path == **own || path.len() > 6 && path.ends_with(own.as_str()));
    let missing = json!({ "kind": "Status", "code": 404, "reason": "NotFound", "status": "Failure" });
    let (status, header, body) = match found {
        Some((_, Some((status, header, body)))) => (*status, *header, body.clone()),
        Some((_, None)) => return thread::sleep(Duration::from_secs(600)),
        None => ("404 Not Found", "", missing.to_string().into_bytes()),
    };
    let mut stream = stream;
    let length =
        if header.is_empty() { format!("Content-Length: {}\r\n", body.len()) } else { header.to_owned() };
    write!(stream, "HTTP/1.1 {status}\r\n{length}Connection: close\r\n\r\n").expect("it listens");
    // A client may close before it has read all.
    stream.write_all(&body).ok();
}

impl Running {
    fn ask(&self, address: &str, network: &str) {
        let holder = Holder { container: sandbox("a"), ifname: "eth0".to_owned() };
        let (network, address) = (network.to_owned(), address.parse().expect("an address"));
        self.asks.ask(Question::Held { path: "ipamhandles".to_owned(), network, holder, address });
    }

    /// Finds the ledger, and asks about an address. Returns the facts.
    async fn answer(&mut self, address: &str, network: &str) -> Vec<Fact> {
        self.ask(address, network);
        let question = self.asker.questions.next().await.expect("a question");
        self.asker.take(question);
        for _ in 0..2 {
            self.asker.step().await.expect("the agent is there");
        }
        self.facts()
    }

    fn facts(&mut self) -> Vec<Fact> {
        let batches = std::iter::from_fn(|| self.batches.try_recv().ok());
        batches.flatten().map(|seen| seen.fact).collect()
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

/// Returns whether the address is held, by the only answer; none: there was no answer.
fn is_held(facts: &[Fact]) -> Option<bool> {
    facts.iter().find_map(|fact| if let Fact::AddressAnswered(it) = fact { Some(it.is_held) } else { None })
}

fn links(facts: &[Fact]) -> Vec<&StoreAnswer> {
    facts
        .iter()
        .filter_map(|fact| if let Fact::StoreLink(it) = fact { Some(&it.answer) } else { None })
        .collect()
}

#[test]
fn a_ledger_is_known_from_the_start_and_what_the_last_agent_heard_of_it_stays() {
    for (asked, before, answers) in [
        (Some(&CALICO), Vec::new(), vec![StoreAnswer::Answers]),
        (Some(&CALICO), vec![CALICO.store()], Vec::new()),
        (None, vec![CALICO.store()], vec![StoreAnswer::Off]),
        (None, Vec::new(), Vec::new()),
    ] {
        let wanted: Vec<StoreLink> =
            answers.into_iter().map(|answer| StoreLink { store: CALICO.store(), answer }).collect();
        assert_eq!(links_at_start(asked, before), wanted);
    }
}

#[tokio::test]
async fn an_address_that_the_block_has_for_the_sandbox_is_held() {
    let mut running = Server::held().start();
    let facts = running.answer("10.9.0.1", "k8s-pod-network").await;
    assert_eq!((links(&facts), is_held(&facts)), (vec![&StoreAnswer::Answers], Some(true)));
    let Fact::StoreLink(link) = &facts[0] else { panic!("another fact") };
    assert_eq!(link.store.path, "ipamhandles.crd.projectcalico.org");
    let group = "/apis/crd.projectcalico.org/v1";
    let wanted = [
        "/apis".to_owned(),
        format!("{group}/ipamhandles/sandprobe"),
        format!("{group}/ipamblocks/sandprobe"),
        format!("{group}{}", own()),
        format!("{group}/ipamblocks/10-9-0-0-30"),
    ];
    assert_eq!(running.asked(), wanted);
}

#[tokio::test]
async fn where_calico_s_own_group_is_missing_its_other_one_is_asked() {
    let mut server = Server::held();
    server.found("/apis", &json!({ "groups": [{ "name": "projectcalico.org" }] }));
    let mut running = server.start();
    assert_eq!(is_held(&running.answer("10.9.0.1", "k8s-pod-network").await), Some(true));
    assert!(running.asked().iter().skip(1).all(|path| path.starts_with("/apis/projectcalico.org/v3/")));
    // Without any, it is no Calico, or one with its own etcd.
    let mut running = Server::new("cilium.io").start();
    let facts = running.answer("10.9.0.1", "k8s-pod-network").await;
    assert_eq!((facts, running.asked()), (Vec::new(), vec!["/apis".to_owned(); 2]));
}

/// A handle may be left over, and the address may be somebody else's by now.
#[tokio::test]
async fn only_the_block_says_that_an_address_is_held() {
    let own_id = format!("k8s-pod-network.{}", sandbox("a"));
    let mut changed = block(&own_id);
    changed["spec"]["deleted"] = json!(true);
    let mut cooling = block(&own_id);
    cooling["spec"]["attributes"][1]["releasedAt"] = json!("2026-08-01T10:00:00Z");
    let mut free = block(&own_id);
    free["spec"]["allocations"][1] = Value::Null;
    for (name, object) in
        [("deleted", changed), ("cooling", cooling), ("free", free), ("another", block("k8s-pod-network.b"))]
    {
        let mut server = Server::held();
        server.found("/ipamblocks/10-9-0-0-30", &object);
        let facts = server.start().answer("10.9.0.1", "k8s-pod-network").await;
        assert_eq!(is_held(&facts), Some(false), "{name}");
    }
    // Addresses of a tunnel, of a virtual machine, and outside of the block are not the sandbox's.
    for address in ["10.9.0.0", "10.9.0.3", "10.9.0.7", "fd00::1"] {
        let facts = Server::held().start().answer(address, "k8s-pod-network").await;
        assert_eq!(is_held(&facts), Some(false), "{address}");
    }
    // Neither is there any more.
    for path in [own(), "/ipamblocks/10-9-0-0-30".to_owned()] {
        let mut server = Server::held();
        server.answers.remove(&path);
        let facts = server.start().answer("10.9.0.1", "k8s-pod-network").await;
        assert_eq!(is_held(&facts), Some(false), "{path}");
    }
    let mut server = Server::held();
    server.found(&own(), &json!({ "spec": { "deleted": true, "block": { "10.9.0.0/30": 1 } } }));
    assert_eq!(is_held(&server.start().answer("10.9.0.1", "k8s-pod-network").await), Some(false));
}

/// A record that does not decode says nothing about the API server.
#[tokio::test]
async fn a_record_of_another_form_is_left_out_and_the_others_are_asked() {
    let texts = [r#"{"spec":{"block":"all"}}"#.to_owned(), "{}".to_owned(), " ".repeat(5 << 20)];
    for text in texts {
        let mut server = Server::held();
        server.says(&own(), "200 OK", "", text.into_bytes());
        let mut running = server.start();
        running.answer("10.9.0.1", "k8s-pod-network").await;
        assert!(running.asker.was_unclear && running.asker.may_ask());
        assert_eq!(running.answer("10.9.0.1", "other").await.len(), 1, "the next question is answered");
        assert_eq!(running.asked().iter().filter(|path| **path == "/apis").count(), 1);
    }
    // No API server answers with these.
    for (status, body) in [("200 OK", b"<html>".to_vec()), ("502 Bad Gateway", vec![b' '; 5 << 20])] {
        let mut server = Server::held();
        server.says(&own(), status, "", body);
        let mut running = server.start();
        running.answer("10.9.0.1", "k8s-pod-network").await;
        assert!(!running.asker.was_unclear && !running.asker.may_ask(), "{status}");
    }
}

/// Whoever asks the same API server leaves it alone, too.
#[tokio::test]
async fn what_the_api_server_asks_of_one_holds_for_all() {
    let mut server = Server::held();
    server.says(&own(), "429 Too Many Requests", "Retry-After: 30\r\nContent-Length: 0\r\n", Vec::new());
    let mut running = server.start();
    assert!(running.other.may_be_asked());
    running.answer("10.9.0.1", "k8s-pod-network").await;
    assert!(!running.other.may_be_asked());
}

#[tokio::test]
async fn an_ipv6_address_is_found_in_its_block() {
    let mut server = Server::held();
    let id = format!("k8s-pod-network.{}", sandbox("a"));
    server.found(&own(), &json!({ "spec": { "block": { "10.9.0.0/30": 1, "fd00:9::40/126": 1 } } }));
    let mut object = block(&id);
    object["spec"]["cidr"] = json!("fd00:9::40/126");
    server.found("/ipamblocks/fd00-9--40-126", &object);
    assert_eq!(is_held(&server.start().answer("fd00:9::41", "k8s-pod-network").await), Some(true));
}

#[tokio::test]
async fn a_missing_right_is_named_and_stops_the_questions() {
    let rights = [
        ("/apis", "get /apis"),
        ("/ipamhandles/sandprobe", "get ipamhandles.crd.projectcalico.org"),
        ("/ipamblocks/sandprobe", "get ipamblocks.crd.projectcalico.org"),
    ];
    for (path, right) in rights {
        let mut server = Server::held();
        server.refuses(path);
        let mut running = server.start();
        running.asker.step().await.expect("the agent is there");
        let right = right.to_owned();
        assert_eq!(links(&running.facts()), [&StoreAnswer::Refused { right }]);
        assert!(!running.asker.may_ask());
        tokio::time::pause();
        for (minutes, may_ask) in [(9, false), (2, true)] {
            tokio::time::advance(Duration::from_secs(minutes * 60)).await;
            assert_eq!(running.asker.may_ask(), may_ask, "{path}");
        }
        tokio::time::resume();
    }
    // The right may be taken away later.
    let mut server = Server::held();
    server.refuses(&own());
    let facts = server.start().answer("10.9.0.1", "k8s-pod-network").await;
    let right = "get ipamhandles.crd.projectcalico.org".to_owned();
    assert_eq!(links(&facts), [&StoreAnswer::Answers, &StoreAnswer::Refused { right }]);
    assert_eq!(is_held(&facts), None);
}

/// What no API server says of an address is no answer.
#[tokio::test]
async fn nothing_follows_from_an_answer_that_is_none() {
    let id = format!("k8s-pod-network.{}", sandbox("a"));
    let text = |text: &str| ("200 OK", "", text.as_bytes().to_vec());
    let endless = vec![b' '; 5 << 20];
    let of_block = |change: &dyn Fn(&mut Value)| {
        let mut object = block(&id);
        change(&mut object);
        ("200 OK", "", object.to_string().into_bytes())
    };
    let blocks = [
        ("no JSON", text("<html>")),
        ("another object", text("{}")),
        ("a text as number", of_block(&|it| it["spec"]["allocations"] = json!("0"))),
        ("a short block", of_block(&|it| it["spec"]["allocations"] = json!([0]))),
        ("no attributes", of_block(&|it| it["spec"]["attributes"] = json!([]))),
        ("another subnet", of_block(&|it| it["spec"]["cidr"] = json!("10.9.0.4/30"))),
        ("more than 4 MiB", ("200 OK", "", endless)),
        ("cut", ("200 OK", "Content-Length: 900\r\n", br#"{"spec":{"cidr""#.to_vec())),
        ("a load balancer", ("404 Not Found", "", b"no backend".to_vec())),
        (
            "an overloaded server",
            ("429 Too Many Requests", "Retry-After: 30\r\nContent-Length: 0\r\n", Vec::new()),
        ),
        ("a broken server", ("500 Internal Server Error", "", Vec::new())),
    ];
    for (name, (status, header, body)) in blocks {
        let mut server = Server::held();
        server.says("/ipamblocks/10-9-0-0-30", status, header, body);
        let mut running = server.start();
        let facts = running.answer("10.9.0.1", "k8s-pod-network").await;
        assert_eq!((is_held(&facts), links(&facts)), (None, vec![&StoreAnswer::Answers]), "{name}");
        let is_left_alone = name == "an overloaded server";
        assert_eq!(!running.asker.server.may_be_asked(), is_left_alone, "{name}");
    }
    // Names from records do not become other paths.
    for cidr in ["10.9.0.0/30/../..", "../../secrets", "10.9.0.0/99", "", "10.9.0.0"] {
        let mut server = Server::held();
        server.found(&own(), &json!({ "spec": { "block": { "10.9.0.0/30": 1, cidr: 1 } } }));
        let mut running = server.start();
        assert_eq!(is_held(&running.answer("10.9.0.1", "k8s-pod-network").await), None, "{cidr}");
        assert_eq!(running.asked().len(), 4, "the block is not asked for: {cidr}");
    }
    for network in ["", "../..", "a/b", "a b", "a?b", "a%2fb", "n\u{e4}", &"a".repeat(300)] {
        let mut running = Server::held().start();
        assert_eq!(is_held(&running.answer("10.9.0.1", network).await), None, "{network}");
        assert_eq!(running.asked().len(), 3, "nothing is asked: {network}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_keeps_nobody_waiting_for_ever() {
    let mut server = Server::held();
    server.answers.insert(own(), None);
    let mut running = server.start();
    running.ask("10.9.0.1", "k8s-pod-network");
    let question = running.asker.questions.next().await.expect("a question");
    running.asker.take(question);
    running.asker.step().await.expect("the agent is there");
    let group = running.asker.group.expect("a group");
    let asked = running.asker.waiting.pop_front().expect("a question");
    tokio::time::pause();
    let unanswered = running.asker.answer(group, &asked).await.expect_err("no answer");
    assert!(matches!(unanswered, Unanswered::Failed(_, None)), "{unanswered:?}");
    assert_eq!(is_held(&running.facts()), None);
}

#[tokio::test]
async fn a_ledger_that_is_silent_for_long_is_told_once() {
    let mut running = Server::new("cilium.io").start();
    for (minutes, told) in [(0, vec![]), (4, vec![]), (2, vec![StoreAnswer::Silent]), (60, vec![])] {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(minutes * 60)).await;
        tokio::time::resume();
        running.asker.step().await.expect("the agent is there");
        let facts = running.facts();
        assert_eq!(links(&facts), told.iter().collect::<Vec<_>>(), "after {minutes} more minutes");
    }
}

/// The objects that are not there are answered all the time.
#[tokio::test]
async fn a_ledger_whose_records_fail_is_silent_and_the_question_waits() {
    let mut server = Server::held();
    server.says(&own(), "500 Internal Server Error", "", Vec::new());
    let mut running = server.start();
    let facts = running.answer("10.9.0.1", "k8s-pod-network").await;
    assert_eq!(links(&facts), [&StoreAnswer::Answers], "it was found");
    for (minutes, told) in [(4, vec![]), (2, vec![StoreAnswer::Silent]), (10, vec![])] {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(minutes * 60)).await;
        tokio::time::resume();
        for _ in 0..2 {
            running.asker.step().await.expect("the agent is there");
        }
        let facts = running.facts();
        assert_eq!(links(&facts), told.iter().collect::<Vec<_>>(), "after {minutes} more minutes");
        assert!(!running.asker.link.is_due(), "it is asked later each time");
    }
    let asked = running.asked().iter().filter(|path| path.ends_with(&own())).count();
    assert_eq!((asked, running.asker.waiting.len()), (4, 1));
}

/// A quiet node asks about its one damaged record every ten minutes.
#[tokio::test]
async fn a_ledger_with_one_damaged_record_is_not_silent_and_one_with_two_is() {
    let mut server = Server::held();
    server.says(&own(), "200 OK", "", b"7".to_vec());
    let mut running = server.start();
    let facts = running.answer("10.9.0.1", "k8s-pod-network").await;
    assert_eq!(links(&facts), [&StoreAnswer::Answers], "it was found");
    let again: [(&str, Vec<StoreAnswer>); 4] = [
        ("10.9.0.1", vec![]),
        ("10.9.0.1", vec![]),
        ("10.9.0.2", vec![]),
        ("10.9.0.2", vec![StoreAnswer::Silent]),
    ];
    for (address, told) in again {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(10 * 60)).await;
        tokio::time::resume();
        running.ask(address, "k8s-pod-network");
        let question = running.asker.questions.next().await.expect("a question");
        running.asker.take(question);
        running.asker.step().await.expect("the agent is there");
        assert_eq!(links(&running.facts()), told.iter().collect::<Vec<_>>(), "{address}");
    }
}

#[tokio::test]
async fn a_question_that_waits_already_is_not_asked_twice() {
    let mut running = Server::held().start();
    for address in ["10.9.0.1", "10.9.0.1", "10.9.0.2"] {
        running.ask(address, "k8s-pod-network");
        let question = running.asker.questions.next().await.expect("a question");
        running.asker.take(question);
    }
    let waiting: Vec<String> =
        running.asker.waiting.iter().map(|it: &Asked| it.address.to_string()).collect();
    assert_eq!(waiting, ["10.9.0.1", "10.9.0.2"]);
}
