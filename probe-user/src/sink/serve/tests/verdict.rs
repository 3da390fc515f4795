//! Access to the verdict; a request does not change it.

use std::time::Duration;

use super::{Bench, NETWORK, Peer, Token, block_on};

const LOOPBACK: Peer = Peer::Network { has_certificate: false, is_loopback: true };

#[test]
fn the_verdict_needs_no_token_on_the_machine_and_does_not_change_by_itself() {
    block_on(async {
        const REQUEST: &[u8] = b"GET /v1/verdict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut bench = Bench::new();
        bench.guard.token = Some(Token::new("0123456789abcdef").expect("a token"));
        assert_eq!(bench.send(NETWORK, REQUEST).await.status, 401);
        let first = bench.send(LOOPBACK, REQUEST).await;
        let verdict = first.json();
        assert_eq!((first.status, &verdict["status"]), (200, &"ok".into()), "{verdict}");
        assert_eq!(verdict["reasons"], serde_json::json!([]), "the demo's findings are warnings");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(bench.send(Peer::Socket, REQUEST).await.body, first.body, "only the time has passed");
        let blind = Bench::seeing("exec", None).send(Peer::Socket, REQUEST).await;
        let verdict = blind.json();
        assert_eq!((blind.status, &verdict["status"]), (503, &"unknown".into()), "{verdict}");
        assert_eq!(verdict["reasons"], serde_json::json!(["SignalNotSeen"]));
    });
}
