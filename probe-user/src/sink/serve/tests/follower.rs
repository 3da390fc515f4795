//! Clients that follow the events, over the port and over the socket.

use std::{net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net,
    sync::watch,
    task,
    time::timeout,
};

use super::{Bench, PATIENCE, block_on};
use crate::sink::serve::{
    ConnectionContext, NETWORK, SOCKET, guard::Guard, over_socket, over_tcp, seats::Seats,
};

/// The status with which a request to follow the events is answered.
async fn followed(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> u16 {
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("it listens");
    let mut begun = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut begun)).await.expect("in time").expect("readable");
    str::from_utf8(&begun[9..]).ok().and_then(|status| status.parse().ok()).expect("a status")
}

/// A client of the port, from `127.0.0.LAST`.
async fn client(address: SocketAddr, last: u8) -> net::TcpStream {
    let socket = net::TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, last], 0).into()).expect("an address");
    socket.connect(address).await.expect("it listens")
}

#[test]
fn users_of_the_node_follow_with_a_few_streams_and_take_none_of_the_socket() {
    block_on(async {
        let bench = Bench::new();
        let (busy, _idle) = watch::channel(());
        let (app, guard) = (Arc::clone(&bench.app), Arc::new(Guard::default()));
        let context = ConnectionContext { app, guard, busy };
        let port = net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = port.local_addr().expect("an address");
        tokio::spawn(over_tcp(port, None, Seats::new(NETWORK), context.clone()));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.sock");
        let socket = net::UnixListener::bind(&path).expect("a socket");
        tokio::spawn(over_socket(socket, Seats::new(SOCKET), context));

        let mut clients = Vec::new();
        loop {
            // From another address each time.
            let last = 2 + u8::try_from(clients.len()).expect("few");
            let mut client = client(address, last).await;
            if followed(&mut client).await == 503 {
                break;
            }
            clients.push(client);
        }
        assert_eq!(clients.len(), NETWORK.followers_per_client);
        let mut of_root = Vec::new();
        for _ in 0..SOCKET.followers {
            let mut client = net::UnixStream::connect(&path).await.expect("it listens");
            assert_eq!(followed(&mut client).await, 200);
            of_root.push(client);
        }
        let mut one_more = net::UnixStream::connect(&path).await.expect("it listens");
        assert_eq!(followed(&mut one_more).await, 503);
        // Root's streams take none of the port either.
        clients.pop();
        let again = async {
            while followed(&mut client(address, 2).await).await != 200 {
                task::yield_now().await;
            }
        };
        timeout(PATIENCE, again).await.expect("there is room again");
    });
}
