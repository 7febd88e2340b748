use proptest::prelude::*;

use super::*;

fn denial(host: &str) -> Record {
    Record::Decision(Box::new(Decision {
        turn: "3".to_owned(),
        conn: 7,
        way: Way::Connect,
        asked: format!("{host}:443"),
        target: Some(format!("{host}:443")),
        method: None,
        addresses: vec![Address { ip: "10.0.0.1".parse().unwrap(), refused: Some(Reason::AddressPrivate) }],
        via: None,
        binary: Some("/usr/bin/curl".to_owned()),
        verdict: Verdict::Deny,
        entry: None,
        source: None,
        reason: Some(Reason::HostNotListed),
        detail: None,
        policy: "abc".to_owned(),
    }))
}

fn file(hosts: &[&str]) -> (Vec<u8>, Head) {
    let mut chain = Chain::default();
    let lines = hosts.iter().map(|host| chain.seal("2026-01-02T03:04:05Z", &denial(host)).unwrap());
    (lines.collect::<Vec<_>>().concat(), chain.head().clone())
}

fn rejoin(lines: &[&[u8]]) -> Vec<u8> {
    let mut text = lines.join(&b'\n');
    text.push(b'\n');
    text
}

#[test]
fn a_whole_file_proves_its_head() {
    let (text, head) = file(&["a.example", "b.example", "c.example"]);
    assert_eq!(verify(&text, Some(&head)), Ok(Proof { head: head.clone(), tears: Vec::new() }));
    assert_eq!(verify(b"", None).unwrap().head.seq, 0);
}

#[test]
fn a_missing_altered_or_reordered_record_is_found() {
    let (text, head) = file(&["a.example", "b.example", "c.example"]);
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let altered = String::from_utf8(lines[1].to_vec()).unwrap().replace("b.example", "x.example");
    let last = String::from_utf8(lines[2].to_vec()).unwrap().replace("deny", "allow");
    let cases: [(Vec<u8>, usize, FaultKind); 8] = [
        (rejoin(&[lines[0], lines[2]]), 2, FaultKind::Missing(1)),
        (rejoin(&[lines[1], lines[2]]), 1, FaultKind::Missing(1)),
        (rejoin(&[lines[0], lines[1]]), 2, FaultKind::Head),
        (rejoin(&[lines[0], altered.as_bytes(), lines[2]]), 3, FaultKind::AlteredBefore),
        (rejoin(&[lines[0], lines[1], last.as_bytes()]), 3, FaultKind::Head),
        (rejoin(&[lines[0], lines[0], lines[1]]), 2, FaultKind::Reordered),
        (rejoin(&[lines[0], b"", lines[1]]), 2, FaultKind::Unreadable),
        (text[..text.len() - 9].to_vec(), 3, FaultKind::Head),
    ];
    for (text, line, kind) in cases {
        assert_eq!(
            verify(&text, Some(&head)),
            Err(Fault { line, kind }),
            "{}",
            String::from_utf8_lossy(&text)
        );
    }
}

#[test]
fn a_chain_goes_on_where_it_ended() {
    let (mut text, head) = file(&["a.example"]);
    let mut chain = Chain::after(head);
    text.extend(chain.seal("2026-01-02T03:04:06Z", &denial("b.example")).unwrap());
    assert_eq!(verify(&text, Some(chain.head())).unwrap().head.seq, 2);
}

/// The file cut at `len` bytes and gone on with.
fn torn_at(text: &[u8], len: usize) -> Vec<u8> {
    let mut text = text[..len].to_vec();
    let resumed = resume(&text, "2026-01-02T03:04:06Z").unwrap();
    text.extend(resumed.append);
    let mut chain = Chain::after(resumed.head);
    text.extend(chain.seal("2026-01-02T03:04:07Z", &denial("after.example")).unwrap());
    text
}

#[test]
fn a_file_torn_at_any_byte_goes_on_and_says_where() {
    let (text, _) = file(&["a.example", "bü.example"]);
    let whole = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for len in whole..=text.len() {
        let cut = &text[..len];
        let before = verify(cut, None).unwrap();
        let bytes = len - whole;
        let torn = bytes > 0 && len < text.len() - 1;
        let tear = Tear { line: 2, bytes, told: false };
        assert_eq!(before.tears, if torn { vec![tear] } else { Vec::new() }, "{len}");
        let after = torn_at(&text, len);
        assert!(after.starts_with(cut), "nothing is taken away");
        let proof = verify(&after, None).unwrap();
        assert_eq!(proof.tears, if torn { vec![Tear { told: true, ..tear }] } else { Vec::new() }, "{len}");
        assert_eq!(proof.head.seq, before.head.seq + 1 + u64::from(torn), "{len}");
        assert!(!String::from_utf8_lossy(&after).contains("}{"), "no lines are fused");
    }
}

#[test]
fn a_mend_that_is_torn_itself_is_mended() {
    let (text, _) = file(&["a.example", "b.example"]);
    let once = torn_at(&text, text.len() - 40);
    for len in text.len() - 40..once.len() {
        let twice = torn_at(&once, len);
        let proof = verify(&twice, None).unwrap();
        assert!(!proof.tears.is_empty() && proof.tears.iter().all(|tear| tear.told), "{len}");
        assert!(twice.starts_with(&once[..len]));
    }
}

#[test]
fn zeros_that_a_lost_disk_write_left_are_gone_on_after() {
    let (mut text, _) = file(&["a.example"]);
    text.extend([0; 50]);
    let all = torn_at(&text, text.len());
    assert_eq!(verify(&all, None).unwrap().tears, [Tear { line: 2, bytes: 50, told: true }]);
}

#[test]
fn what_no_crash_can_have_left_is_a_fault() {
    let (text, head) = file(&["a.example", "b.example"]);
    let torn = torn_at(&text, text.len() - 40);
    let said = String::from_utf8(torn).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let join = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes();
    let cases = [
        (join(&[lines[0], &lines[1].replace("b.ex", "x.ex"), lines[2], lines[3]]), 3, FaultKind::NotTorn),
        (join(&[lines[0], lines[2], lines[3]]), 2, FaultKind::NotTorn),
        (join(&[lines[0], lines[1], lines[3]]), 3, FaultKind::Missing(1)),
        (join(&[lines[0], "no record"]), 2, FaultKind::Unreadable),
        (join(&[lines[0], "{\"v\":1}"]), 2, FaultKind::Unreadable),
    ];
    for (text, line, kind) in cases {
        let fault = Fault { line, kind };
        assert_eq!(resume(&text, "2026-01-02T03:04:06Z"), Err(fault.clone()));
        assert_eq!(verify(&text, None), Err(fault), "{}", String::from_utf8_lossy(&text));
    }
    let cut = verify(&text[..text.len() - 40], Some(&head));
    assert_eq!(
        cut,
        Err(Fault { line: 2, kind: FaultKind::Head }),
        "a summary tells that a record is missing"
    );
}

proptest! {
    #[test]
    fn any_changed_byte_is_found(at in 0_usize..900, to in any::<u8>()) {
        let (mut text, head) = file(&["a.example", "b.example"]);
        let at = at % (text.len() - 1);
        prop_assume!(text[at] != to);
        text[at] = to;
        prop_assert!(verify(&text, Some(&head)).is_err());
    }

    #[test]
    fn no_secret_survives_redaction(before in "[a-z/:?=&@]{0,20}", after in "[a-z/:?=&@]{0,20}") {
        let redactor = Redactor::new(["canary-secret".to_owned()]);
        let shown = redactor.target(&format!("{before}canary-secret{after}"));
        prop_assert!(!shown.contains("canary-secret"), "{}", shown);
    }
}

#[test]
fn row_91_user_query_values_and_secrets_are_taken_out() {
    let redactor = Redactor::new(["hunter2hunter2".to_owned(), "abc".to_owned()]);
    let cases = [
        (
            "http://user:pass@example.com/a?key=value&b",
            "http://[redacted]@example.com/a?key=[redacted]&[redacted]",
        ),
        ("user:pass@example.com:443", "[redacted]@example.com:443"),
        ("http://example.com/hunter2hunter2/x", "http://example.com/[redacted]/x"),
        ("http://example.com/a@b", "http://example.com/a@b"),
        ("abc.example:443", "abc.example:443"),
        ("a\u{1b}[31m\0.example", "a\\u{1b}[31m\\u{0}.example"),
    ];
    for (text, expected) in cases {
        assert_eq!(redactor.target(text), expected);
    }
    assert_eq!(clean(&"x".repeat(600)).chars().count(), 513);
    assert!(!format!("{redactor:?}").contains("hunter2"));
}

#[test]
fn decisions_are_shown_as_table_json_and_csv() {
    let (text, _) = file(&["a.example", "=b.example"]);
    let text = String::from_utf8(text).unwrap();
    let filter = Filter { host: Some("a.ex".to_owned()), verdict: Some(Verdict::Deny), ..Filter::default() };
    let shown = render(&text, &filter, Format::Table);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.contains("host-not-listed") && shown.contains("/usr/bin/curl"), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&render(&text, &filter, Format::Json)).unwrap();
    assert_eq!(json[0]["seq"], 1);
    let csv = render(&text, &Filter::default(), Format::Csv);
    assert!(csv.contains("\"'=b.example:443\""), "{csv}");
    let none = Filter { reason: Some(Reason::Idle), ..Filter::default() };
    assert_eq!(render(&text, &none, Format::Json), "[]\n");
    assert!(!shown.contains("not shown"), "{shown}");
}

#[test]
fn a_table_says_how_many_numbers_it_leaves_out() {
    let close =
        Record::Close(Close { turn: "3".to_owned(), conn: 7, up: 1, down: 2, millis: 3, reason: None });
    let mut chain = Chain::default();
    let records = [denial("a.example"), close.clone(), close, denial("b.example")];
    let lines = records.iter().map(|record| chain.seal("2026-01-02T03:04:05Z", record).unwrap());
    let text = String::from_utf8(lines.collect::<Vec<_>>().concat()).unwrap();
    let shown = render(&text, &Filter::default(), Format::Table);
    assert!(shown.ends_with("\n2 more records are no decisions, and are not shown\n"), "{shown}");
    assert_eq!(shown.lines().count(), 4, "{shown}");
}
