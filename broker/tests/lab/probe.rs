//! Turns the probe into something that is seen to find a hole.

use broker::probe::{Doors, Seen, attempts};
use tokio::io::AsyncWriteExt as _;

use crate::Test;
use crate::lab::{Lab, origin, run, take};

pub(crate) const TESTS: &[Test] = &[("row_26_the_probe_sees_a_closed_broker_and_an_open_one", row_26)];

fn row_26() {
    run(async {
        let lab = Lab::new(&["a.example:443:full"]).await;
        let doors = Doors { proxy: lab.proxy, names: lab.dns };
        let all = tokio::task::spawn_blocking(move || attempts(&doors)).await.unwrap();
        assert!(all.iter().all(|attempt| attempt.seen == Seen::Refused), "{all:?}");
        assert_eq!(lab.decisions().len(), 4, "tunnel, plain request, name, and the address that no name has");
        let _open = origin("127.0.0.1:2000", |mut stream| async move {
            take(&mut stream, 10).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        })
        .await;
        let doors = Doors { proxy: "127.0.0.1:12000".parse().unwrap(), ..doors };
        let all = tokio::task::spawn_blocking(move || attempts(&doors)).await.unwrap();
        assert_eq!(all[0].seen, Seen::Passed);
        assert_eq!(all[1].seen, Seen::Passed);
        let doors = Doors { proxy: "127.0.0.1:1".parse().unwrap(), ..doors };
        let all = tokio::task::spawn_blocking(move || attempts(&doors)).await.unwrap();
        assert!(matches!(all[0].seen, Seen::Broken(_)));
    });
}
