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
    assert_eq!(verify(&text, Some(&head)), Ok(head));
    assert_eq!(verify(b"", None).unwrap().seq, 0);
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
        (text[..text.len() - 9].to_vec(), 3, FaultKind::Unreadable),
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
    assert_eq!(verify(&text, Some(chain.head())).unwrap().seq, 2);
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
}
