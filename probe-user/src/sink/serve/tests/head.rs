//! Invalid request heads. hyper refuses them before the API sees them, as `docs/api.md` says.

use super::{Bench, NETWORK, block_on};

const DOCUMENT: &str = include_str!("../../../../../docs/api.md");

#[test]
fn a_head_that_is_none_is_answered_without_a_body_and_the_connection_ends() {
    block_on(async {
        let bench = Bench::new();
        let long = "x".repeat(20 << 10);
        let many = "A: b\r\n".repeat(65);
        for (request, status) in [
            ("garbage\r\n\r\n".to_owned(), 400),
            ("GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n".to_owned(), 400),
            ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n".to_owned(), 400),
            (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431),
            (format!("GET / HTTP/1.1\r\nA: {long}\r\n\r\n"), 431),
            (format!("GET /{long} HTTP/1.1\r\n\r\n"), 431),
        ] {
            let answer = bench.send(NETWORK, request.as_bytes()).await;
            let asked = request.get(..40).unwrap_or(&request);
            assert_eq!((answer.status, answer.text()), (status, String::new()), "{asked:?}");
        }
        assert!(DOCUMENT.contains("| 400, 431 | the head"), "it does not say so");
        // An error of the API itself has a JSON body.
        assert!(bench.get("/v1/pods?x=1").await.json()["error"].is_string());
    });
}
